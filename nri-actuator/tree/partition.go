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

// MakePartition returns the steps that make a container's cgroup a partition of
// its decision's CPUs. has are the cgroup's partition files; above are the CPUs
// that the cgroups above it name. Without one of its CPUs above it, the kernel
// makes an invalid partition, which is an error here.
//
// The steps begin with a member: some kernels give the CPUs of an invalid
// partition to no cgroup, and keep them for good when the cgroup goes (Linux 6.12).
func MakePartition(dir string, d contract.Decision, has contract.Files, above map[string]contract.CPUSet) ([]Step, error) {
	for _, a := range slices.Backward(slices.Sorted(maps.Keys(above))) {
		if named := above[a]; !d.CPUs.IsSubsetOf(named) {
			return nil, fmt.Errorf("cgroup %s has %d of its %d CPUs in %s (%q)",
				a, d.CPUs.Intersection(named).Size(), d.CPUs.Size(), contract.FileExclusive, named.String())
		}
	}
	return inOrder(dir, has, contract.FilePartition, Member, contract.FileExclusive, d.CPUs.String(),
		contract.FilePartition, d.Partition), nil
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
// in turn. A file that has lacks is written.
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
