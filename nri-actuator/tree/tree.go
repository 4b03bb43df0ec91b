// SPDX-License-Identifier: Apache-2.0

// Package tree plans the actuator's writes. [Desired] says what each cgroup
// shall have, and [Steps] in which order the kernel's files get there. Both are
// functions of values: package enforce reads the kernel, calls them, and writes.
package tree

import (
	"maps"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The files of a cgroup's cpuset. FileEffective has the CPUs that its processes may use.
const (
	FileCPUs      = "cpuset.cpus"
	FileMems      = "cpuset.mems"
	FileEffective = "cpuset.cpus.effective"
)

// Member is the partition file's content in a cgroup that is no partition.
const Member = "member"

// Kind is what a cgroup belongs to.
type Kind int

// Kinds of cgroups, in the order in which they get their contents. Kubelet also
// writes to levels and pods, so these get their former values back.
const (
	Level Kind = iota
	Pod
	// Pooled is a container without claimed CPUs, or with a substitute for them.
	Pooled
	// Claimed is a container with claimed CPUs and without a partition.
	Claimed
	// Partitioned is a container that is a partition.
	Partitioned
)

// Holding is what one container has of the node.
type Holding struct {
	// Dir and PodDir are the cgroups of the container and its pod, below the
	// mount; empty if unknown.
	Dir, PodDir string
	PodUID      string
	// Decision holds for the container. Without a version, the container stays
	// as it is.
	Decision contract.Decision
	// Substitute are the pool's CPUs while the container can run on none of the decision's CPUs;
	// empty otherwise.
	Substitute contract.CPUSet
	// Claimed reports whether the decision's CPUs are claimed CPUs.
	Claimed bool
	// PartitionCPUs are the CPUs of the partition that the kernel has for the
	// container.
	PartitionCPUs contract.CPUSet
}

func (h Holding) stays() bool { return h.Decision.V == "" }

// Cgroup is what one cgroup shall have.
type Cgroup struct {
	Kind  Kind
	Files contract.Files
}

// Desired returns what each cgroup shall have, by directory. levels are the
// directories of kubepods and of the QoS levels, nil if unknown.
func Desired(node contract.NodeState, levels map[string]string, holdings []Holding) map[string]Cgroup {
	desired := make(map[string]Cgroup)
	partitionCPUs := make(map[string]contract.CPUSet)
	for _, h := range holdings {
		if h.PodDir != "" {
			desired[h.PodDir] = Cgroup{Kind: Pod, Files: node.Pods[h.PodUID].Files()}
			partitionCPUs[h.PodDir] = partitionCPUs[h.PodDir].Union(node.Pods[h.PodUID].PartitionCPUs)
		}
	}
	// Another client of the runtime may name a level or a container as a pod's
	// cgroup. It stays what it is.
	for level, dir := range levels {
		desired[dir] = Cgroup{Kind: Level, Files: node.Ancestors[level]}
		partitionCPUs[dir] = node.PartitionCPUs[level]
	}
	for _, h := range holdings {
		if h.Dir != "" && !h.stays() {
			files := ContainerFiles(h.Decision)
			if !h.Substitute.IsEmpty() {
				files[FileCPUs] = h.Substitute.String()
			}
			desired[h.Dir] = Cgroup{Kind: h.kind(), Files: files}
		}
	}
	for _, h := range holdings {
		for _, dir := range Above(h.PodDir, levels) {
			partitionCPUs[dir] = partitionCPUs[dir].Union(h.needsAbove())
		}
	}
	for dir, cpus := range partitionCPUs {
		if !cpus.IsEmpty() {
			files := maps.Clone(desired[dir].Files)
			if files == nil {
				files = make(contract.Files)
			}
			files[contract.FileExclusive] = cpus.String()
			desired[dir] = Cgroup{Kind: desired[dir].Kind, Files: files}
		}
	}
	return desired
}

// Above returns the directories of the pod and of the levels above it.
func Above(podDir string, levels map[string]string) []string {
	if podDir == "" {
		return nil
	}
	above := []string{podDir}
	for _, dir := range levels {
		if strings.HasPrefix(podDir, dir+"/") {
			above = append(above, dir)
		}
	}
	return above
}

func (h Holding) kind() Kind {
	switch {
	case !h.Claimed, !h.Substitute.IsEmpty():
		return Pooled
	case h.Decision.Partition == "":
		return Claimed
	}
	return Partitioned
}

// needsAbove returns the CPUs that the cgroups above the container must name: the CPUs
// of the decision's partition and of the partition that the kernel has. If a cgroup
// above lacks them when a partition ends, the kernel loses these CPUs (seen on Linux
// 6.12).
func (h Holding) needsAbove() contract.CPUSet {
	if h.Decision.Partition == "" {
		return h.PartitionCPUs
	}
	return h.PartitionCPUs.Union(h.Decision.CPUs)
}

// ContainerFiles returns the decision as contents of a container's files,
// without the partition: the cgroups above must have their contents before.
func ContainerFiles(d contract.Decision) contract.Files {
	files := contract.Files(d.Files())
	delete(files, contract.FilePartition)
	if !d.CPUs.IsEmpty() {
		files[FileCPUs] = d.CPUs.String()
	}
	if !d.Mems.IsEmpty() {
		files[FileMems] = d.Mems.String()
	}
	return files
}
