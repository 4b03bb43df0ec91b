// SPDX-License-Identifier: Apache-2.0

// Package cgroups writes values into the cgroups of running containers, of pods
// and of levels. Only the values of a container that the runtime is
// creating or updating go through the runtime instead.
//
// Files are written directly, which is exact and fast with both cgroup drivers.
// With the systemd driver, package systemd gives the values to systemd, too.
package cgroups

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// ErrGone means that a cgroup does not exist: its container has not started or
// has ended.
var ErrGone = errors.New("the cgroup does not exist")

// Mount reads and writes the cgroups of a hierarchy.
type Mount struct {
	hierarchy Hierarchy
	kept      *kept
}

// NewMount returns the mount of a hierarchy.
func NewMount(h Hierarchy) *Mount { return &Mount{hierarchy: h, kept: newKept()} }

// Open opens the hierarchy mounted at mount, normally /sys/fs/cgroup.
func Open(mount string) (*Mount, error) {
	m, err := openMounted(mount)
	if err != nil {
		return nil, fmt.Errorf("open cgroup mount: %w", err)
	}
	return NewMount(m), nil
}

// Close releases the hierarchy and the files that stay open. It waits for no read.
func (m *Mount) Close() error {
	m.kept.close()
	return m.hierarchy.Close()
}

// Exists reports whether the cgroup dir exists. An unclear answer counts as yes: if an
// existing container were forgotten, other containers could get its CPUs (I1).
func (m *Mount) Exists(dir string) bool {
	c, err := m.hierarchy.Open(dir)
	if err == nil {
		_ = c.Close()
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// Children returns the names of the cgroups directly below the cgroup dir.
func (m *Mount) Children(dir string) ([]string, error) {
	d, err := m.open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Children()
	return names, m.explain(dir, "", err)
}

// Read returns the content of a cgroup file without the trailing newline.
func (m *Mount) Read(dir, file string) (string, error) {
	if content, read := m.kept.read(dir, file); read {
		return content, nil
	}
	d, err := m.open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	got, err := read(d, file)
	if err != nil {
		return "", m.explain(dir, file, err)
	}
	return got, nil
}

// ReadCPUs returns the content of a cgroup file with a list of CPUs.
func (m *Mount) ReadCPUs(dir, file string) (contract.CPUSet, error) {
	got, err := m.Read(dir, file)
	if err != nil {
		return contract.CPUSet{}, err
	}
	cpus, err := contract.ParseCPUs(got)
	if err != nil {
		return contract.CPUSet{}, fmt.Errorf("cgroup %s: %s: %w", dir, file, err)
	}
	return cpus, nil
}

func (m *Mount) open(dir string) (Cgroup, error) {
	d, err := m.hierarchy.Open(dir)
	if err != nil {
		return nil, m.explain(dir, "", err)
	}
	return d, nil
}

// explain adds the place to the error. It distinguishes a cgroup that is gone
// from a cgroup without the file, because the controller is off.
func (m *Mount) explain(dir, file string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENODEV), errors.Is(err, fs.ErrNotExist) && !m.Exists(dir):
		return fmt.Errorf("cgroup %s: %w", dir, ErrGone)
	case file == "":
		return fmt.Errorf("cgroup %s: %w", dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cgroup %s has no file %s: enable the file's controller in the cgroup above: %w", dir, file, err)
	}
	return fmt.Errorf("cgroup %s: %s: %w", dir, file, err)
}

func read(c Cgroup, file string) (string, error) {
	data, err := c.Read(file)
	return trim(data), err
}

func trim(content []byte) string { return string(bytes.TrimSpace(content)) }

// write writes the content. Some kernels ignore an empty write.
func write(c Cgroup, file, content string) error {
	return c.Write(file, cmp.Or(content, "\n"))
}
