// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The cgroups of the dry run: a partition needs a parent that is none.
const (
	probe      = contract.Vendor + ".probe"
	probeChild = probe + "/partition"
)

// Partitions finds out, by a dry run, whether the kernel makes partitions of
// cgroups whose parent is none (cgroup-v2.rst, "cpuset.cpus.partition": remote
// partitions). The error says why not. No CPU changes hands: the probe's parent
// has no exclusive CPU to give, so the kernel only says that this is the reason.
// That the runtime may do it, which this program may not, shows in each
// container.
func (t *Tree) Partitions() (err error) {
	// A cgroup that is mounted as if it was the root has this file. Above it
	// would have to be done what is done to kubepods.
	if _, err := t.root.Stat("cgroup.events"); err == nil {
		return errors.New("the cgroup mount is not the root of the hierarchy")
	}
	for _, dir := range []string{probe, probeChild} {
		if err := t.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("cpuset partitions: %w", err)
		}
		defer func() { err = errors.Join(err, t.root.Remove(dir)) }()
		if dir == probe {
			if err := t.put(probe, "cgroup.subtree_control", "+cpuset"); err != nil {
				return err
			}
		}
	}
	cpus, err := t.Read(probeChild, "cpuset.cpus.effective")
	if err != nil {
		return err
	}
	ids, err := contract.ParseList(cpus)
	if err != nil {
		return fmt.Errorf("cgroup %s: cpuset.cpus.effective: %w", probeChild, err)
	}
	if err := t.put(probeChild, contract.FileExclusive, contract.FormatList(ids[:1])); err != nil {
		return err
	}
	if err := t.put(probeChild, contract.FilePartition, contract.PartitionRoot); err != nil {
		return err
	}
	got, err := t.Read(probeChild, contract.FilePartition)
	if err != nil {
		return err
	}
	if got != contract.PartitionRoot && !strings.HasPrefix(got, contract.PartitionRoot+" invalid") {
		return fmt.Errorf("cgroup %s: %s is %q after %q was written", probeChild, contract.FilePartition, got, contract.PartitionRoot)
	}
	return nil
}

// put writes one file.
func (t *Tree) put(dir, file, content string) error {
	d, err := t.open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := write(d, file, content); err != nil {
		return t.explain(dir, file, fmt.Errorf("write %q: %w", content, err))
	}
	return nil
}
