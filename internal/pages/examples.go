// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Marks of YAML that is not whole objects of Kubernetes. On a page the mark is the
// comment right before the block: <!-- values -->. In examples it begins the file's name:
// values-metrics.yaml.
const (
	Values        = "values"        // of the chart
	Configuration = "configuration" // of the frontend
	Machine       = "machine"       // for cpumem simulate --machine
	Kubelet       = "kubelet"       // kubelet's configuration, or a part of it
	Kubeadm       = "kubeadm"       // kubeadm's ClusterConfiguration
	// Part begins the mark of a part of an object: "part of Pod: spec.containers[0]".
	Part = "part of "
)

// YAML returns the blocks of YAML on the pages, and the YAML files below examples.
func YAML(root string, pages []Page) ([]Block, error) {
	var blocks []Block
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Language == "yaml" {
				blocks = append(blocks, b)
			}
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "examples"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file := Block{Page: name, Line: 1, Language: "yaml", Text: string(data)}
		for _, mark := range []string{Values, Configuration, Machine, Kubelet, Kubeadm} {
			if strings.HasPrefix(d.Name(), mark) {
				file.Mark = mark
			}
		}
		blocks = append(blocks, file)
		return nil
	})
	return blocks, err
}
