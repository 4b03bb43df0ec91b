// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// probeName is the cgroup of the dry run.
const probeName = contract.Vendor + ".probe"

// ProbePartitions returns an error unless the kernel has remote partitions, that is
// partitions below a parent that is none (cgroup-v2.rst,
// "cpuset.cpus.partition"). It tries this in a dry run below the cgroup dir. The dry
// run takes no CPU from another cgroup: the parent has no exclusive CPUs, so the
// kernel accepts the write and reports an invalid partition. The actuator checks in
// each container whether the runtime can make partitions.
func (m *Mount) ProbePartitions(dir string) error {
	// Only a cgroup that is not the root has this file. The writes to kubepods
	// would be needed above the mount, too.
	if _, err := m.Read(".", "cgroup.events"); err == nil {
		return fmt.Errorf("%w: the cgroup mount is not the root of the hierarchy", errors.ErrUnsupported)
	}
	parent := path.Join(dir, probeName)
	child := path.Join(parent, "partition")
	for _, d := range []string{parent, child} {
		if err := m.hierarchy.Mkdir(d); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("dry run: %w", err)
		}
		// A directory that stays serves the next dry run.
		defer func() { _ = m.hierarchy.Remove(d) }()
		if d == parent {
			if err := m.put(parent, "cgroup.subtree_control", "+cpuset"); err != nil {
				return err
			}
		}
	}
	cpus, err := m.ReadCPUs(child, "cpuset.cpus.effective")
	if err != nil {
		return err
	}
	if cpus.IsEmpty() {
		return fmt.Errorf("cgroup %s: cpuset.cpus.effective has no CPU", child)
	}
	if err := m.put(child, contract.FileExclusive, contract.CPUs(cpus.List()[0]).String()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the kernel has no %s: %w", errors.ErrUnsupported, contract.FileExclusive, err)
	} else if err != nil {
		return err
	}
	if err := m.put(child, contract.FilePartition, contract.PartitionRoot); err != nil {
		return err
	}
	got, err := m.Read(child, contract.FilePartition)
	if err == nil && got != contract.PartitionRoot && !strings.HasPrefix(got, contract.PartitionRoot+" invalid") {
		err = fmt.Errorf("cgroup %s: %s is %q after %q was written", child, contract.FilePartition, got, contract.PartitionRoot)
	}
	return err
}

// put writes a file, whatever its content is.
func (m *Mount) put(dir, file, content string) error {
	d, err := m.open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := write(d, file, content); err != nil {
		return m.explain(dir, file, fmt.Errorf("write %q: %w", content, err))
	}
	return nil
}
