// SPDX-License-Identifier: Apache-2.0

// Package cgroups writes values into the cgroups of running containers, of
// pods and of their ancestors. It is the last step of everything the actuator
// does outside of container creation; creation itself goes through the
// runtime.
//
// Files are written directly: that is exact and fast with both cgroup drivers.
// With the systemd driver, package units tells systemd as well.
package cgroups

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// ErrGone tells that a cgroup does not exist: its container was not started
// yet, or is over.
var ErrGone = errors.New("the cgroup does not exist")

// Tree is a mounted cgroup v2 hierarchy. Nothing outside of the mount can be
// reached through it, whatever a path says.
type Tree struct {
	root *os.Root
}

// Open opens the hierarchy mounted at mount, normally /sys/fs/cgroup.
func Open(mount string) (*Tree, error) {
	root, err := os.OpenRoot(mount)
	if err != nil {
		return nil, fmt.Errorf("open cgroup mount: %w", err)
	}
	return &Tree{root: root}, nil
}

// Close releases the tree.
func (t *Tree) Close() error { return t.root.Close() }

// Exists tells whether the cgroup dir exists. One that cannot be looked at does:
// who is taken for gone loses what keeps others off its CPUs.
func (t *Tree) Exists(dir string) bool {
	_, err := t.root.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// Children returns the names of the cgroups right below the cgroup dir.
func (t *Tree) Children(dir string) ([]string, error) {
	d, err := t.open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := fs.ReadDir(d.FS(), ".")
	if err != nil {
		return nil, t.explain(dir, "", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Read returns the content of a cgroup file without the trailing newline.
func (t *Tree) Read(dir, file string) (string, error) {
	d, err := t.open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	got, err := read(d, file)
	if err != nil {
		return "", t.explain(dir, file, err)
	}
	return got, nil
}

// Write brings the files of the cgroup dir to the given contents and returns
// those that had another, with what they had. A file that has the content
// already is not written: some writes cost (memory.high reclaims, cpuset.mems
// migrates). It goes on after an error; [ErrGone] in the error means there is no
// cgroup.
//
// Values must be in the kernel's own form, which the contract's are. before is
// called before the first file is written.
func (t *Tree) Write(dir string, files map[string]string, before func()) (found map[string]string, err error) {
	first := true
	return t.write(dir, files, func(*os.Root, string, string) error {
		if first {
			before()
		}
		first = false
		return nil
	})
}

// write calls before for each file that is about to be written.
func (t *Tree) write(dir string, files map[string]string, before func(d *os.Root, file, found string) error) (map[string]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	d, err := t.open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	found := make(map[string]string)
	var errs []error
	for _, file := range slices.Sorted(maps.Keys(files)) {
		got, err := read(d, file)
		if err == nil && got == files[file] {
			continue
		}
		if err == nil {
			err = before(d, file, got)
		}
		if err == nil {
			err = write(d, file, files[file])
		}
		if err != nil {
			err = t.explain(dir, file, fmt.Errorf("write %q: %w", files[file], err))
			if errors.Is(err, ErrGone) {
				return found, err
			}
			errs = append(errs, err)
			continue
		}
		found[file] = got
	}
	return found, errors.Join(errs...)
}

func (t *Tree) open(dir string) (*os.Root, error) {
	d, err := t.root.OpenRoot(dir)
	if err != nil {
		return nil, t.explain(dir, "", err)
	}
	return d, nil
}

// explain names the place, and tells a cgroup that is gone from one that lacks
// the file because its controller is off.
func (t *Tree) explain(dir, file string, err error) error {
	switch {
	case errors.Is(err, syscall.ENODEV), errors.Is(err, fs.ErrNotExist) && !t.Exists(dir):
		return fmt.Errorf("cgroup %s: %w", dir, ErrGone)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cgroup %s: no file %s, is the controller enabled for it? %w", dir, file, err)
	}
	return fmt.Errorf("cgroup %s: %s: %w", dir, file, err)
}

func read(d *os.Root, file string) (string, error) {
	f, err := d.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// write writes in one call, as the kernel wants it. Truncating means nothing
// to cgroupfs, and makes a plain file hold exactly the content.
func write(d *os.Root, file, content string) error {
	f, err := d.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	if content == "" {
		// Nothing is no write at all to some kernels.
		content = "\n"
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}
