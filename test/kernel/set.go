// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"math/bits"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// set is a set of CPUs or NUMA nodes below 64.
type set uint64

func first(n int) set { return set(1)<<n - 1 }

func one(n int) set { return set(1) << n }

func (s set) without(o set) set   { return s &^ o }
func (s set) overlaps(o set) bool { return s&o != 0 }
func (s set) subsetOf(o set) bool { return s&^o == 0 }
func (s set) orIfEmpty(other set) set {
	if s == 0 {
		return other
	}
	return s
}

// String returns the kernel's list, e.g. "0-3,8".
func (s set) String() string {
	var members []int
	for rest := s; rest != 0; rest &= rest - 1 {
		members = append(members, bits.TrailingZeros64(uint64(rest)))
	}
	return contract.CPUs(members...).String()
}

// parse reads a list. An empty list is the empty set.
func parse(list string) (set, error) {
	if list == "" {
		return 0, nil
	}
	cpus, err := contract.ParseCPUs(list)
	if err != nil {
		return 0, syscall.EINVAL
	}
	var s set
	for _, c := range cpus.List() {
		if c >= 64 {
			return 0, ErrOutside
		}
		s |= one(c)
	}
	return s, nil
}
