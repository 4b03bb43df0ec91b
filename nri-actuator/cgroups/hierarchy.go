// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Hierarchy is a cgroup v2 hierarchy. A cgroup's name is its directory, relative to
// the root, "." for the root. The errors are those of the system calls.
type Hierarchy interface {
	Open(dir string) (Cgroup, error)
	Mkdir(dir string) error
	// Remove removes an empty cgroup.
	Remove(dir string) error
	Close() error
}

// Cgroup is an open cgroup.
type Cgroup interface {
	// Children returns the names of the cgroups directly below.
	Children() ([]string, error)
	// Read returns at most the first 64 KiB of a file.
	Read(file string) ([]byte, error)
	// Write writes a file in one call, as the kernel wants it.
	Write(file, content string) error
	// Attributes returns the names of all extended attributes, Attribute the value of
	// one (xattr(7)). On a kernel without attributes on cgroups the errors are
	// [errors.ErrUnsupported].
	Attributes() ([]string, error)
	Attribute(name string) (string, error)
	SetAttribute(name, value string) error
	RemoveAttribute(name string) error
	Close() error
}

// mounted is a hierarchy that the kernel has mounted. No path leads out of it.
type mounted struct{ *os.Root }

func (m mounted) Open(dir string) (Cgroup, error) {
	root, err := m.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &directory{Root: root}, nil
}

func (m mounted) Mkdir(dir string) error { return m.Root.Mkdir(dir, 0o755) }

// directory is the directory of a cgroup.
type directory struct {
	*os.Root
	// file is the directory itself, which has the attributes; nil until it is used.
	file *os.File
}

func (d *directory) Close() error {
	err := d.Root.Close()
	if d.file != nil {
		err = errors.Join(err, d.file.Close())
	}
	return err
}

func (d *directory) Children() ([]string, error) {
	entries, err := fs.ReadDir(d.FS(), ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d *directory) Read(file string) ([]byte, error) {
	f, err := d.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}

// Write truncates the file, which cgroupfs ignores: a plain file in a test has exactly
// the content.
func (d *directory) Write(file, content string) error {
	f, err := d.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// fd returns the descriptor of the directory.
func (d *directory) fd() (int, error) {
	if d.file == nil {
		file, err := d.Open(".")
		if err != nil {
			return 0, err
		}
		d.file = file
	}
	return int(d.file.Fd()), nil
}

func (d *directory) Attributes() ([]string, error) {
	fd, err := d.fd()
	if err != nil {
		return nil, err
	}
	// The kernel allows 128 KiB of user attributes on a cgroup.
	var short [4 << 10]byte
	n, err := unix.Flistxattr(fd, short[:])
	list := short[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		list = make([]byte, 256<<10)
		n, err = unix.Flistxattr(fd, list)
		list = list[:max(n, 0)]
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list, []byte{0}), []byte{0}) {
		names = append(names, string(name))
	}
	return names, nil
}

func (d *directory) Attribute(name string) (string, error) {
	fd, err := d.fd()
	if err != nil {
		return "", err
	}
	var short [4 << 10]byte
	n, err := unix.Fgetxattr(fd, name, short[:])
	value := short[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		value = make([]byte, 64<<10) // the largest attribute (xattr(7)): lists of CPUs can be long
		n, err = unix.Fgetxattr(fd, name, value)
		value = value[:max(n, 0)]
	}
	return string(value), err
}

func (d *directory) SetAttribute(name, value string) error {
	fd, err := d.fd()
	if err != nil {
		return err
	}
	return unix.Fsetxattr(fd, name, []byte(value), 0)
}

func (d *directory) RemoveAttribute(name string) error {
	fd, err := d.fd()
	if err != nil {
		return err
	}
	return unix.Fremovexattr(fd, name)
}
