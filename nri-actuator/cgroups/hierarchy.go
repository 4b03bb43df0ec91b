// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"

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
	// OpenFile opens a file for many reads.
	OpenFile(file string) (File, error)
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

// File is an open file of a cgroup.
type File interface {
	// Read returns at most the first 64 KiB of what the file has now. It may return a part of the buffer, so the content is valid
	// until the buffer's next use. If the cgroup was removed, the error is ENODEV, even if there is a new cgroup of the same name.
	Read(buffer []byte) ([]byte, error)
	Close() error
}

// mounted is a hierarchy that the kernel has mounted. No path leads out of it.
type mounted struct {
	*os.Root
	// file is the root's directory.
	file *os.File
}

func openMounted(path string) (mounted, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return mounted{}, err
	}
	file, err := root.Open(".")
	if err != nil {
		return mounted{}, errors.Join(err, root.Close())
	}
	return mounted{root, file}, nil
}

func (m mounted) Close() error { return errors.Join(m.file.Close(), m.Root.Close()) }

// Open opens a cgroup with one system call, because each comparison with the kernel opens
// every cgroup.
func (m mounted) Open(dir string) (Cgroup, error) {
	const inside = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	fd, err := again(func() (int, error) {
		return unix.Openat2(int(m.file.Fd()), dir, &unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: inside,
		})
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return m.openByParts(dir) // Linux before 5.6, or a seccomp profile from before it
	}
	if err != nil {
		return nil, err
	}
	return directory(fd), nil
}

func (m mounted) openByParts(dir string) (Cgroup, error) {
	file, err := m.Root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return directory(fd), nil
}

func (m mounted) Mkdir(dir string) error { return m.Root.Mkdir(dir, 0o755) }

// directory is the descriptor of the directory of a cgroup. A file takes three system
// calls; package os would make twice as many.
type directory int

func (d directory) Close() error { return unix.Close(int(d)) }

func (d directory) Children() ([]string, error) {
	fd, err := d.open(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), ".")
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// open opens a file of the directory. Names of files have no slash.
func (d directory) open(file string, flags int) (int, error) {
	return again(func() (int, error) { return unix.Openat(int(d), file, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0) })
}

func (d directory) OpenFile(file string) (File, error) {
	fd, err := d.open(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return descriptor(fd), nil
}

func (d directory) Read(file string) ([]byte, error) {
	fd, err := d.open(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var buffer [shortFile]byte
	content, err := descriptor(fd).Read(buffer[:])
	return bytes.Clone(content), err
}

// descriptor is the descriptor of a file of a cgroup.
type descriptor int

// Read reads from the beginning, where the kernel makes the content anew (seq_file.rst).
func (d descriptor) Read(buffer []byte) ([]byte, error) {
	buffer = buffer[:min(len(buffer), maxFile)]
	for length := 0; ; {
		n, err := again(func() (int, error) { return unix.Pread(int(d), buffer[length:], int64(length)) })
		if err != nil {
			return nil, err
		}
		// The kernel gives a cgroup file whole: a read that leaves room was the last.
		if length += n; length < len(buffer) || length == maxFile {
			return buffer[:length], nil
		}
		buffer = append(make([]byte, 0, maxFile), buffer...)[:maxFile]
	}
}

func (d descriptor) Close() error { return unix.Close(int(d)) }

const (
	maxFile = 64 << 10
	// shortFile is the length of a buffer that most files fit in.
	shortFile = 1 << 10
)

// Write truncates the file, which cgroupfs ignores: a plain file in a test has exactly
// the content.
func (d directory) Write(file, content string) error {
	fd, err := d.open(file, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	n, err := again(func() (int, error) { return unix.Write(fd, []byte(content)) })
	if err == nil && n < len(content) {
		err = io.ErrShortWrite // the rest would be another value
	}
	return errors.Join(err, unix.Close(fd))
}

// again makes a system call again that a signal has interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (d directory) Attributes() ([]string, error) {
	// The kernel allows 128 KiB of user attributes on a cgroup.
	var short [4 << 10]byte
	n, err := unix.Flistxattr(int(d), short[:])
	list := short[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		list = make([]byte, 256<<10)
		n, err = unix.Flistxattr(int(d), list)
		list = list[:max(n, 0)]
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for len(list) > 0 {
		var name []byte
		name, list, _ = bytes.Cut(list, []byte{0})
		names = append(names, string(name))
	}
	return names, nil
}

func (d directory) Attribute(name string) (string, error) {
	var short [4 << 10]byte
	n, err := unix.Fgetxattr(int(d), name, short[:])
	value := short[:max(n, 0)]
	if errors.Is(err, unix.ERANGE) {
		value = make([]byte, 64<<10) // the largest attribute (xattr(7)): lists of CPUs can be long
		n, err = unix.Fgetxattr(int(d), name, value)
		value = value[:max(n, 0)]
	}
	return string(value), err
}

func (d directory) SetAttribute(name, value string) error {
	return unix.Fsetxattr(int(d), name, []byte(value), 0)
}

func (d directory) RemoveAttribute(name string) error {
	return unix.Fremovexattr(int(d), name)
}
