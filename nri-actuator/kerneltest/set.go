// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"math/bits"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// capacity is one more than the largest member of a set.
const capacity = 512

// set is a set of CPUs or NUMA nodes.
type set [capacity / 64]uint64

// listOf returns the set of the members, which are below the capacity.
func listOf(members ...int) (s set) {
	for _, n := range members {
		s[n/64] |= 1 << (n % 64)
	}
	return s
}

func first(n int) (s set) {
	for i := range n {
		s[i/64] |= 1 << (i % 64)
	}
	return s
}

func (s set) union(o set) set {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

func (s set) meet(o set) set {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

func (s set) without(o set) set {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

func (s set) empty() bool         { return s == set{} }
func (s set) overlaps(o set) bool { return !s.meet(o).empty() }
func (s set) subsetOf(o set) bool { return s.without(o).empty() }
func (s set) orIfEmpty(other set) set {
	if s.empty() {
		return other
	}
	return s
}

func (s set) members() (all []int) {
	for i, rest := range s {
		for ; rest != 0; rest &= rest - 1 {
			all = append(all, 64*i+bits.TrailingZeros64(rest))
		}
	}
	return all
}

// String returns the kernel's list, e.g. "0-3,8".
func (s set) String() string { return contract.CPUs(s.members()...).String() }

// parse reads a list. An empty list is the empty set.
func parse(list string) (set, error) {
	if list == "" {
		return set{}, nil
	}
	cpus, err := contract.ParseCPUs(list)
	if err != nil {
		return set{}, syscall.EINVAL
	}
	members := cpus.List()
	if members[len(members)-1] >= capacity {
		return set{}, ErrOutside
	}
	return listOf(members...), nil
}
