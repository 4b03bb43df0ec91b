// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// NamedAbove returns an error unless all cgroups above a container name the CPUs in
// cpuset.cpus.exclusive. above has what these cgroups name, by directory. Without one
// of its CPUs above it, the kernel makes an invalid partition.
func NamedAbove(cpus contract.CPUSet, above map[string]contract.CPUSet) error {
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(above))) {
		if named := above[dir]; !cpus.IsSubsetOf(named) {
			return fmt.Errorf("cgroup %s has %q in %s, the container's partition needs %s", dir, named.String(), contract.FileExclusive, cpus)
		}
	}
	return nil
}

// MakePartition returns the steps that make a container's cgroup a partition of
// its decision's CPUs, which all cgroups above it name ([NamedAbove]). has are the
// cgroup's partition files.
//
// The steps begin with a member: some kernels give the CPUs of an invalid
// partition to no cgroup, and keep them for good when the cgroup goes (Linux 6.12).
func MakePartition(dir string, d contract.Decision, has contract.Files) []Step {
	return inOrder(dir, has, contract.FilePartition, Member, contract.FileExclusive, d.CPUs.String(),
		contract.FilePartition, d.Partition)
}

// MakeMember returns the steps that make a partition a member, with its CPUs.
func MakeMember(dir string, has contract.Files) []Step {
	return inOrder(dir, has, contract.FilePartition, Member)
}

// EndPartition returns the steps that end a partition and give its CPUs back: no
// other cgroup can use them while this cgroup names them. A partition needs its
// CPUs until it is a member.
func EndPartition(dir string, has contract.Files) []Step {
	return inOrder(dir, has, contract.FilePartition, Member, contract.FileExclusive, "")
}

// inOrder returns the writes of contents that differ. files are names and contents
// in turn. A file that is not in has is written.
func inOrder(dir string, has contract.Files, files ...string) []Step {
	now := maps.Clone(has)
	if now == nil {
		now = make(contract.Files)
	}
	var steps []Step
	for pair := range slices.Chunk(files, 2) {
		if content, read := now[pair[0]]; !read || content != pair[1] {
			steps = append(steps, Step{Dir: dir, Kind: Partitioned, File: pair[0], Content: pair[1], Found: content})
		}
		now[pair[0]] = pair[1]
	}
	return steps
}

// Refused returns why the kernel does not grant a partition. content is what the
// partition's file has after it was written, empty if the kernel grants it.
func Refused(d contract.Decision, content string) string {
	if content == d.Partition {
		return ""
	}
	reason, _ := strings.CutPrefix(content, d.Partition+" invalid")
	return cmp.Or(strings.TrimSpace(reason), "the kernel gives no reason")
}
