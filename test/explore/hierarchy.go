// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"io/fs"
	"path"
	"slices"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// crash ends a process at a file operation. It is a panic's value.
type crash struct{}

// fault is what goes wrong in an action: a process crashes before one of its file
// operations, or the operation fails.
type fault struct {
	// before is the number of file operations before the fault, negative for none.
	before int
	fails  bool
}

var none = fault{before: -1}

func (f fault) life() *life { return &life{fault: f} }

// life counts the file operations of a process.
type life struct {
	fault
	over bool
	// failed reports whether an operation of the present action failed.
	failed bool
	// taken counts the operations.
	taken int
}

// operation is called before each file operation. The operation of a process that has
// crashed has no effect: deferred calls run while the panic unwinds.
func (l *life) operation() error {
	switch {
	case l.over:
		return fs.ErrClosed
	case l.before == 0 && l.fails:
		l.before--
		l.failed = true
		return syscall.EIO
	case l.before == 0:
		l.over = true
		panic(crash{})
	}
	l.before--
	l.taken++
	return nil
}

// hierarchy is the model's hierarchy as a process sees it.
type hierarchy struct {
	*life
	kernel func() *kernel.Kernel
	// wrote is called after each write.
	wrote func(dir, file, content string)
}

func (h hierarchy) Open(dir string) (cgroups.Cgroup, error) {
	if _, err := h.kernel().Attributes(dir); err != nil {
		return nil, err
	}
	return open{h, dir}, nil
}

func (h hierarchy) Mkdir(dir string) error {
	if err := h.operation(); err != nil {
		return err
	}
	return h.kernel().Mkdir(dir)
}

func (h hierarchy) Remove(dir string) error {
	if err := h.operation(); err != nil {
		return err
	}
	return h.kernel().Rmdir(dir)
}

func (hierarchy) Close() error { return nil }

// open is an open cgroup.
type open struct {
	hierarchy
	dir string
}

func (o open) Children() ([]string, error) {
	var names []string
	for _, dir := range o.kernel().Dirs() {
		if path.Dir(dir) == o.dir {
			names = append(names, path.Base(dir))
		}
	}
	return names, nil
}

func (o open) Read(file string) ([]byte, error) {
	content, err := o.kernel().Read(o.dir, file)
	return []byte(content + "\n"), err
}

func (o open) Write(file, content string) error {
	if err := o.operation(); err != nil {
		return err
	}
	err := o.kernel().Write(o.dir, file, content)
	o.wrote(o.dir, file, content)
	return err
}

func (o open) Attributes() ([]string, error) {
	all, err := o.kernel().Attributes(o.dir)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

func (o open) Attribute(name string) (string, error) {
	all, err := o.kernel().Attributes(o.dir)
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
	if err := o.operation(); err != nil {
		return err
	}
	all, err := o.kernel().Attributes(o.dir)
	if err == nil {
		all[name] = value
	}
	return err
}

func (o open) RemoveAttribute(name string) error {
	all, err := o.kernel().Attributes(o.dir)
	if err != nil {
		return err
	}
	if _, found := all[name]; !found {
		return syscall.ENODATA
	}
	if err := o.operation(); err != nil {
		return err
	}
	delete(all, name)
	return nil
}
