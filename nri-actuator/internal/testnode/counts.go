// SPDX-License-Identifier: Apache-2.0

package testnode

import (
	"sync/atomic"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

// Counts counts the operations on a hierarchy.
type Counts struct {
	// Operations are all operations, each one to three system calls on a real node.
	Operations atomic.Int64
	// Cgroups are the cgroups that were opened, Files the files that are open.
	Cgroups, Files atomic.Int64
}

// Of returns the hierarchy h, with its operations counted.
func (c *Counts) Of(h cgroups.Hierarchy) cgroups.Hierarchy { return counted{h, c} }

type counted struct {
	cgroups.Hierarchy
	counts *Counts
}

func (h counted) Open(dir string) (cgroups.Cgroup, error) {
	h.counts.Operations.Add(1)
	h.counts.Cgroups.Add(1)
	c, err := h.Hierarchy.Open(dir)
	if err != nil {
		return nil, err
	}
	return countedCgroup{c, h.counts}, nil
}

type countedCgroup struct {
	cgroups.Cgroup
	counts *Counts
}

func (c countedCgroup) Children() ([]string, error) {
	c.counts.Operations.Add(1)
	return c.Cgroup.Children()
}

func (c countedCgroup) Read(file string) ([]byte, error) {
	c.counts.Operations.Add(1)
	return c.Cgroup.Read(file)
}

func (c countedCgroup) OpenFile(file string) (cgroups.File, error) {
	c.counts.Operations.Add(1)
	f, err := c.Cgroup.OpenFile(file)
	if err != nil {
		return nil, err
	}
	c.counts.Files.Add(1)
	return countedFile{f, c.counts}, nil
}

func (c countedCgroup) Write(file, content string) error {
	c.counts.Operations.Add(1)
	return c.Cgroup.Write(file, content)
}

func (c countedCgroup) Attributes() ([]string, error) {
	c.counts.Operations.Add(1)
	return c.Cgroup.Attributes()
}

func (c countedCgroup) Attribute(name string) (string, error) {
	c.counts.Operations.Add(1)
	return c.Cgroup.Attribute(name)
}

type countedFile struct {
	cgroups.File
	counts *Counts
}

func (f countedFile) Read(buffer []byte) ([]byte, error) {
	f.counts.Operations.Add(1)
	return f.File.Read(buffer)
}

func (f countedFile) Close() error {
	f.counts.Files.Add(-1)
	return f.File.Close()
}
