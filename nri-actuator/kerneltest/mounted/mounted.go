// SPDX-License-Identifier: Apache-2.0

// Package mounted is the model of the kernel behind the interface by which the actuator
// reads and writes cgroups.
package mounted

import (
	"maps"
	"path"
	"slices"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// Process takes the operations of a process, or has them fail, or does more.
type Process interface {
	// Open takes an operation that looks for a cgroup.
	Open(dir string, do func() error) error
	// Read takes a read of a cgroup: of the file or attribute of this name, or of the
	// names of all cgroups below it or of all its attributes if name is empty.
	Read(dir, name string, do func() error) error
	// Write takes a change: of a file, with this content, or of anything else if file is
	// empty.
	Write(dir, file, content string, do func() error) error
}

// Hierarchy is a kernel's hierarchy as a process sees it.
type Hierarchy struct {
	Kernel  *kerneltest.Kernel
	Process Process
	// Namespace, if set, returns the root of the process's cgroup namespace, empty for the
	// first namespace.
	Namespace func() string
}

// Open implements [cgroups.Hierarchy].
func (h Hierarchy) Open(dir string) (cgroups.Cgroup, error) {
	err := h.Process.Open(dir, func() error {
		if dir == "" {
			return syscall.ENOENT // path_resolution(7)
		}
		_, err := h.Kernel.Attributes(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return open{h, dir}, nil
}

// Mkdir implements [cgroups.Hierarchy].
func (h Hierarchy) Mkdir(dir string) error {
	return h.Process.Write(dir, "", "", func() error { return h.Kernel.Mkdir(dir) })
}

// Remove implements [cgroups.Hierarchy].
func (h Hierarchy) Remove(dir string) error {
	return h.Process.Write(dir, "", "", func() error { return h.Kernel.Rmdir(dir) })
}

// Close implements [cgroups.Hierarchy].
func (Hierarchy) Close() error { return nil }

// Look is what a cgroup has at a moment: the contents of the files that the process can
// read, with the trailing newline, and the attributes.
type Look struct{ Files, Attributes map[string]string }

// Look opens the cgroup and reads all of it.
func (h Hierarchy) Look(dir string) (Look, error) {
	l := Look{Files: make(map[string]string)}
	var contents map[string]string
	err := h.Process.Open(dir, func() (err error) {
		if contents, err = h.Kernel.Contents(dir); err != nil {
			return err
		}
		attributes, err := h.Kernel.Attributes(dir)
		l.Attributes = maps.Clone(attributes)
		return err
	})
	for file, content := range contents {
		if h.Process.Read(dir, file, func() error { return nil }) == nil {
			l.Files[file] = content + "\n"
		}
	}
	return l, err
}

// open is an open cgroup.
type open struct {
	Hierarchy
	dir string
}

func (o open) Children() (names []string, err error) {
	err = o.Process.Read(o.dir, "", func() error {
		for _, dir := range o.Kernel.Dirs() {
			if path.Dir(dir) == o.dir {
				names = append(names, path.Base(dir))
			}
		}
		return nil
	})
	return names, err
}

func (o open) Read(file string) ([]byte, error) {
	content := ""
	err := o.Process.Read(o.dir, file, func() (err error) {
		content, err = o.Kernel.Read(o.dir, file)
		return err
	})
	return []byte(content + "\n"), err
}

// OpenFile fails for a file that does not exist.
func (o open) OpenFile(name string) (cgroups.File, error) {
	f := file{open: o, name: name}
	err := o.Process.Open(o.dir, func() (err error) {
		if f.id, err = o.Kernel.ID(o.dir); err == nil {
			_, err = o.Kernel.Read(o.dir, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// file is an open file of the cgroup with the id.
type file struct {
	open open
	name string
	id   uint64
}

func (f file) Read([]byte) ([]byte, error) {
	content := ""
	err := f.open.Process.Read(f.open.dir, f.name, func() error {
		now, err := f.open.Kernel.ID(f.open.dir)
		if err == nil {
			content, err = f.open.Kernel.Read(f.open.dir, f.name)
		}
		if err != nil || now != f.id {
			return syscall.ENODEV
		}
		return nil
	})
	return []byte(content + "\n"), err
}

func (file) Close() error { return nil }

func (o open) Write(file, content string) error {
	return o.Process.Write(o.dir, file, content, func() error {
		if o.Namespace == nil {
			return o.Kernel.Write(o.dir, file, content)
		}
		return o.Kernel.WriteFrom(o.Namespace(), o.dir, file, content)
	})
}

func (o open) Attributes() (names []string, err error) {
	err = o.Process.Read(o.dir, "", func() error {
		all, err := o.Kernel.Attributes(o.dir)
		names = slices.Sorted(maps.Keys(all))
		return err
	})
	return names, err
}

func (o open) Attribute(name string) (value string, err error) {
	err = o.Process.Read(o.dir, name, func() error {
		all, err := o.Kernel.Attributes(o.dir)
		if err != nil {
			return err
		}
		found := false
		if value, found = all[name]; !found {
			return syscall.ENODATA
		}
		return nil
	})
	return value, err
}

func (o open) SetAttribute(name, value string) error {
	return o.Process.Write(o.dir, "", "", func() error {
		all, err := o.Kernel.Attributes(o.dir)
		if err == nil {
			all[name] = value
		}
		return err
	})
}

// RemoveAttribute looks for the attribute first: the removal of an attribute that is not
// there is no change.
func (o open) RemoveAttribute(name string) error {
	err := o.Process.Open(o.dir, func() error {
		all, err := o.Kernel.Attributes(o.dir)
		if _, found := all[name]; err == nil && !found {
			return syscall.ENODATA
		}
		return err
	})
	if err != nil {
		return err
	}
	return o.Process.Write(o.dir, "", "", func() error {
		all, err := o.Kernel.Attributes(o.dir)
		delete(all, name)
		return err
	})
}
