// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// copied is the directory with the cgroup files that the frontend reads, all but those
// of containers.
type copied struct {
	dir  string
	seen map[string]string
}

// copiedFiles are the names of files that the frontend reads.
func copiedFiles() []string {
	return []string{"cpuset.cpus", "cpuset.cpus.effective", contract.FileExclusive, "memory.min", "memory.low"}
}

// update makes the copy of a cgroup current.
func (c copied) update(k *kerneltest.Kernel, dir string) error {
	if up := path.Base(path.Dir(dir)); strings.HasPrefix(up, "pod") {
		return nil
	}
	at := filepath.Join(c.dir, dir)
	if _, err := k.Attributes(dir); err != nil {
		for _, file := range copiedFiles() {
			delete(c.seen, filepath.Join(at, file))
		}
		return os.RemoveAll(at)
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	for _, file := range copiedFiles() {
		name := filepath.Join(at, file)
		content, err := k.Read(dir, file)
		if _, there := c.seen[name]; err != nil || there && c.seen[name] == content {
			continue
		}
		if err := replace(name, content); err != nil {
			return err
		}
		c.seen[name] = content
	}
	return nil
}

// replace writes a file in one step.
func replace(name, content string) error {
	temporary := name + ".new"
	if err := os.WriteFile(temporary, []byte(content+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}
