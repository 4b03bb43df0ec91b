// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
	"strings"
)

// FeaturePartition: the decision makes its container a cpuset partition below
// cgroups that are none, which the kernel can since 6.7 (cgroup-v2.rst,
// "cpuset.cpus.partition").
const FeaturePartition = "partition"

// Kinds of a partition, as the kernel names them.
const (
	// PartitionRoot: the kernel takes the CPUs from all other cgroups.
	PartitionRoot = "root"
	// PartitionIsolated: the scheduler does not balance load over them either.
	PartitionIsolated = "isolated"
)

// Partitions returns the kinds of a partition, the stricter one last.
func Partitions() []string { return []string{PartitionRoot, PartitionIsolated} }

// The files of a partition.
const (
	FileExclusive = "cpuset.cpus.exclusive"
	FilePartition = "cpuset.cpus.partition"
)

// checkPartition checks the partition of a decision whose lists are valid.
func (d Decision) checkPartition() error {
	switch {
	case d.Partition == "":
		return nil
	case !slices.Contains(Partitions(), d.Partition):
		return fmt.Errorf("partition: %q is none of %s", d.Partition, strings.Join(Partitions(), ", "))
	case d.CPUs == "":
		return fmt.Errorf("partition: %s without cpus", d.Partition)
	case !slices.Contains(d.Requires, FeaturePartition):
		return fmt.Errorf("partition: %s needs feature %q in requires", d.Partition, FeaturePartition)
	}
	return nil
}

// combinePartitions is the stricter of both. A container is a partition with
// all its CPUs or not at all: those of a claim that asks for none are nobody
// else's either.
func combinePartitions(a, b string) string {
	kinds := Partitions()
	return append([]string{""}, kinds...)[max(slices.Index(kinds, a), slices.Index(kinds, b))+1]
}
