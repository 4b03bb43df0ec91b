// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"path"
	"slices"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// hierarchy is the model's hierarchy as a process sees it.
type hierarchy struct {
	*life
	kernel *kernel.Kernel
	// wrote is called after each write to a file.
	wrote func(dir, file, content string)
}

func (h hierarchy) Open(dir string) (cgroups.Cgroup, error) {
	if _, err := h.kernel.Attributes(dir); err != nil {
		return nil, err
	}
	return open{h, dir}, nil
}

func (h hierarchy) Mkdir(dir string) error {
	return h.write(func() error { return h.kernel.Mkdir(dir) })
}

func (h hierarchy) Remove(dir string) error {
	return h.write(func() error { return h.kernel.Rmdir(dir) })
}

func (hierarchy) Close() error { return nil }

// open is an open cgroup.
type open struct {
	hierarchy
	dir string
}

func (o open) Children() ([]string, error) {
	var names []string
	for _, dir := range o.kernel.Dirs() {
		if path.Dir(dir) == o.dir {
			names = append(names, path.Base(dir))
		}
	}
	return names, o.read()
}

func (o open) Read(file string) ([]byte, error) {
	if err := o.read(); err != nil {
		return nil, err
	}
	content, err := o.kernel.Read(o.dir, file)
	return []byte(content + "\n"), err
}

func (o open) Write(file, content string) error {
	err := o.write(func() error { return o.kernel.Write(o.dir, file, content) })
	o.wrote(o.dir, file, content)
	return err
}

func (o open) Attributes() ([]string, error) {
	if err := o.read(); err != nil {
		return nil, err
	}
	all, err := o.kernel.Attributes(o.dir)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

func (o open) Attribute(name string) (string, error) {
	if err := o.read(); err != nil {
		return "", err
	}
	all, err := o.kernel.Attributes(o.dir)
	if err != nil {
		return "", err
	}
	value, found := all[name]
	if !found {
		return "", syscall.ENODATA
	}
	return value, nil
}

func (o open) SetAttribute(name, value string) error {
	return o.write(func() error {
		all, err := o.kernel.Attributes(o.dir)
		if err == nil {
			all[name] = value
		}
		return err
	})
}

func (o open) RemoveAttribute(name string) error {
	all, err := o.kernel.Attributes(o.dir)
	if err != nil {
		return err
	}
	if _, found := all[name]; !found {
		return syscall.ENODATA
	}
	return o.write(func() error {
		delete(all, name)
		return nil
	})
}
