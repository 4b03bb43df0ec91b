// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds of a partition, as the kernel names them. The container's cgroup becomes a
// partition below cgroups that are no partitions: Linux can do this since 6.7
// (cgroup-v2.rst, "cpuset.cpus.partition").
const (
	// PartitionRoot: the kernel takes the CPUs from all other cgroups.
	PartitionRoot = "root"
	// PartitionIsolated: as root, and the scheduler balances no load over the
	// CPUs.
	PartitionIsolated = "isolated"
)

// PartitionKinds returns the kinds of a partition, the stricter kind last.
func PartitionKinds() []string { return []string{PartitionRoot, PartitionIsolated} }

// The files of a partition.
const (
	FileExclusive = "cpuset.cpus.exclusive"
	FilePartition = "cpuset.cpus.partition"
)

// checkPartition checks the partition.
func (d Decision) checkPartition() error {
	switch {
	case d.Partition == "":
		return nil
	case !slices.Contains(PartitionKinds(), d.Partition):
		return fmt.Errorf("partition: %q is none of %s", d.Partition, strings.Join(PartitionKinds(), ", "))
	case d.CPUs.IsEmpty():
		return fmt.Errorf("partition: %s without cpus", d.Partition)
	case !slices.Contains(d.Requires, FeaturePartition):
		return fmt.Errorf("partition: %s needs feature %q in requires", d.Partition, FeaturePartition)
	}
	return nil
}

// combinePartitions returns the stricter kind. A container is a partition with
// all its CPUs or with none. The CPUs of its claims without a partition can be
// in the partition, because no other container has them.
func combinePartitions(a, b string) string {
	kinds := PartitionKinds()
	return append([]string{""}, kinds...)[max(slices.Index(kinds, a), slices.Index(kinds, b))+1]
}
