// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Files returns the names of the cgroup's files that the model has.
func (k *Kernel) Files(dir string) ([]string, error) {
	c, err := k.find(dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(k.files(c))), nil
}

// Contents returns the contents of all of the cgroup's files that the model has.
func (k *Kernel) Contents(dir string) (map[string]string, error) {
	c, err := k.find(dir)
	if err != nil {
		return nil, err
	}
	contents := make(map[string]string)
	for name, file := range k.files(c) {
		contents[name] = file.read()
	}
	return contents, nil
}

// Read returns the content of a file, without the trailing newline.
func (k *Kernel) Read(dir, file string) (string, error) {
	c, err := k.find(dir)
	if err != nil {
		return "", err
	}
	f, found := k.files(c)[file]
	if !found {
		return "", syscall.ENOENT
	}
	return f.read(), nil
}

// Write writes a file, as one system call.
func (k *Kernel) Write(dir, file, content string) error { return k.WriteFrom("", dir, file, content) }

// WriteFrom writes a file as a process in a cgroup namespace does, whose root is the
// cgroup namespace. The hierarchy is mounted with nsdelegate: the files of the root belong
// to the parent, but the one with the controllers.
func (k *Kernel) WriteFrom(namespace, dir, file, content string) error {
	c, err := k.find(dir)
	if err != nil {
		return err
	}
	f, found := k.files(c)[file]
	switch {
	case !found:
		return syscall.ENOENT
	case f.write == nil:
		return syscall.EACCES
	case namespace != "" && c.dir == namespace && file != "cgroup.subtree_control":
		return syscall.EPERM
	}
	return f.write(strings.TrimSpace(content))
}

// file is a cgroup file. A file without write is read-only.
type file struct {
	read  func() string
	write func(content string) error
}

func (k *Kernel) files(c *cgroup) map[string]file {
	files := map[string]file{
		"cgroup.subtree_control": {
			read: func() string {
				return list(func(controller string) bool { return c.enabled[controller] })
			},
			write: func(content string) error { return k.enable(c, content) },
		},
		"cgroup.controllers": {read: func() string { return list(c.has) }},
	}
	if c != k.root {
		files["cgroup.events"] = file{read: func() string {
			populated := 0
			if c.populated() {
				populated = 1
			}
			return fmt.Sprintf("populated %d\nfrozen 0", populated)
		}}
	}
	if c.has("cpuset") {
		maps.Copy(files, k.cpusetFiles(c))
	}
	if c == k.root {
		return files
	}
	if c.has("cpu") {
		files[contract.FileQuota] = quotaFile(c)
	}
	for name, v := range k.values {
		if c.has(v.controller) {
			files[name] = v.file(c, name)
		}
	}
	return files
}

// list returns the controllers for which has is true.
func list(has func(controller string) bool) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(Controllers), func(name string) bool { return !has(name) }), " ")
}

// enable enables controllers for the children, e.g. "+cpuset +memory".
func (k *Kernel) enable(c *cgroup, content string) error {
	for word := range strings.FieldsSeq(content) {
		controller, plus := strings.CutPrefix(word, "+")
		switch {
		case !plus:
			return ErrOutside
		case !slices.Contains(Controllers, controller):
			return syscall.EINVAL
		case !c.has(controller):
			return syscall.ENOENT
		case c.enabled[controller]:
			continue
		case c != k.root && c.processes > 0:
			return syscall.EBUSY
		}
		c.enabled[controller] = true
	}
	return nil
}

// Controllers are the controllers that the model has, in the kernel's order.
var Controllers = []string{"cpuset", "cpu", "memory", "hugetlb"}
