// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

// result is what the cluster of one contender measured.
type result struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Kernel string `json:"kernel"`
	// Starts has three numbers for each kind and level: see [isolation.Starts.Summary].
	Starts isolation.Starts `json:"starts"`
}

// results are in the order of [contenders].
type results []result

// readResults reads the numbers of earlier runs. Without the file there are none.
func readResults(file string) (results, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all results
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}

// with returns the results and r, with the earlier levels of the same contender that were measured on the same kernel.
func (all results) with(r result) results {
	order := []string{"driver", "static", "peer"}
	out := slices.DeleteFunc(slices.Clone(all), func(o result) bool { return o.ID == r.ID })
	for _, earlier := range all {
		if earlier.ID == r.ID && earlier.Name == r.Name && earlier.Kernel == r.Kernel {
			r.Starts = earlier.Starts.With(r.Starts)
		}
	}
	out = append(out, r)
	slices.SortFunc(out, func(a, b result) int { return slices.Index(order, a.ID) - slices.Index(order, b.ID) })
	return out
}

// of returns the starts of a contender, none without a result.
func (all results) of(id string) isolation.Starts {
	for _, r := range all {
		if r.ID == id {
			return r.Starts
		}
	}
	return isolation.Starts{}
}

// write writes the numbers, the picture and the tables of the page into the directory.
func (all results) write(dir string) error {
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, numbers), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, picture), []byte(drawCosts(all.starts())), 0o644),
		document.Insert(filepath.Join(dir, page), target, all.text()),
	)
}

func (all results) starts() []isolation.Starts {
	var out []isolation.Starts
	for _, r := range all {
		out = append(out, r.Starts)
	}
	return out
}

// text returns what the command writes into the page.
func (all results) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "![Chart: how many times as long as a pod without a claim the start of a pod with CPUs of its own takes, "+
		"over the number of containers](%s)\n\n"+
		"The times are seconds of the node's clock from a pod's creation until the pod is ready: the median (least to most) of so "+
		"many *starts*. *To no claim* is this median divided by the median of the pods without a claim on the same row. *Growth* is "+
		"*to no claim* divided by *to no claim* on the first row; for this driver it must not be above %.1f. *To a device* is the "+
		"median divided by the median of the pods with a claim of a PCI device, whose driver only sets a variable of the container's "+
		"environment: what Kubernetes takes for any claim is in both. *Part* is the time that kubelet and the runtime wait for this "+
		"driver's daemons, divided by the median of the pods without a claim on the same row; it must not be above %.1f.\n",
		picture, isolation.Goal, isolation.PartGoal)
	for _, r := range all {
		fmt.Fprintf(&text, "\n%s, on Linux %s:\n\n%s", r.Name, r.Kernel, startTable(r.Starts)+partTable(r.Starts)+cpuTable(r.Starts))
	}
	return text.String()
}
