// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// CPUSet is a set of CPUs.
type CPUSet = Set[cpuIDs]

// NUMANodeSet is a set of NUMA nodes.
type NUMANodeSet = Set[nodeIDs]

// The kinds of a set's ids: a set of CPUs is no set of NUMA nodes.
type (
	cpuIDs  struct{}
	nodeIDs struct{}
)

// Set is a set of ids of one kind. The zero value is the empty set. Equal sets
// are equal by ==.
//
// A set's text is its list in the kernel's form ("0-3,8,10-11"; cpuset(7),
// "List format"), normalised: sorted, without an id twice, with adjacent ids as
// a range. The guard and the provenance check compare lists as text.
type Set[Of any] struct{ list string }

// CPUs returns the set of the ids.
func CPUs(ids ...int) CPUSet { return newSet[cpuIDs](cpuset.New(ids...)) }

// NUMANodes returns the set of the ids.
func NUMANodes(ids ...int) NUMANodeSet { return newSet[nodeIDs](cpuset.New(ids...)) }

// ParseCPUs parses a list in any order; "" is the empty set. An id above 65536
// and a descending range are errors.
func ParseCPUs(list string) (CPUSet, error) { return parseSet[cpuIDs](list) }

// ParseNUMANodes parses a list as [ParseCPUs] does.
func ParseNUMANodes(list string) (NUMANodeSet, error) { return parseSet[nodeIDs](list) }

// String returns the list, "" for the empty set.
func (s Set[Of]) String() string { return s.list }

// IsEmpty reports whether the set has no id.
func (s Set[Of]) IsEmpty() bool { return s.list == "" }

// List returns the ids, sorted.
func (s Set[Of]) List() []int { return s.ids().List() }

// Size returns how many ids the set has.
func (s Set[Of]) Size() int { return s.ids().Size() }

// Contains reports whether the set has the id. It reads the list as it is:
// callers ask for each CPU of a machine.
func (s Set[Of]) Contains(id int) bool {
	for part := range strings.SplitSeq(s.list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(lo)
		last := first
		if isRange && err == nil {
			last, err = strconv.Atoi(hi)
		}
		if err == nil && first <= id && id <= last {
			return true
		}
	}
	return false
}

// IsSubsetOf reports whether the other set has all ids of the set.
func (s Set[Of]) IsSubsetOf(other Set[Of]) bool {
	return s.IsEmpty() || s == other || s.ids().IsSubsetOf(other.ids())
}

// Overlaps reports whether the sets have an id in common.
func (s Set[Of]) Overlaps(other Set[Of]) bool { return !s.Intersection(other).IsEmpty() }

// Empty sets are frequent, and cost the methods below nothing.

// Union returns the ids of all sets.
func (s Set[Of]) Union(others ...Set[Of]) Set[Of] {
	var all []cpuset.CPUSet
	for _, other := range others {
		if !other.IsEmpty() && other != s {
			all = append(all, other.ids())
		}
	}
	if len(all) == 0 {
		return s
	}
	return newSet[Of](s.ids().Union(all...))
}

// Intersection returns the ids that both sets have.
func (s Set[Of]) Intersection(other Set[Of]) Set[Of] {
	if s.IsEmpty() || other.IsEmpty() {
		return Set[Of]{}
	}
	return newSet[Of](s.ids().Intersection(other.ids()))
}

// Difference returns the ids of the set that the other set lacks.
func (s Set[Of]) Difference(other Set[Of]) Set[Of] {
	if s.IsEmpty() || other.IsEmpty() {
		return s
	}
	return newSet[Of](s.ids().Difference(other.ids()))
}

// MarshalText returns the list.
func (s Set[Of]) MarshalText() ([]byte, error) { return []byte(s.list), nil }

// UnmarshalText takes a list that is normalised and not empty, so that each set
// has one text.
func (s *Set[Of]) UnmarshalText(text []byte) error {
	set, err := parseSet[Of](string(text))
	if err != nil {
		return err
	}
	if set.IsEmpty() {
		return errors.New("empty list, want ids as in 0-3,8")
	}
	if set.list != string(text) {
		return fmt.Errorf("list %q is not normalised, want %q", text, set.list)
	}
	*s = set
	return nil
}

func newSet[Of any](ids cpuset.CPUSet) Set[Of] { return Set[Of]{list: ids.String()} }

// ids returns the set for package cpuset. The list is normalised, because
// newSet made it.
func (s Set[Of]) ids() cpuset.CPUSet {
	ids, err := cpuset.Parse(s.list)
	if err != nil {
		panic(fmt.Sprintf("contract: set with the list %q: %v", s.list, err))
	}
	return ids
}

// maxID bounds CPU and NUMA node ids. It is far above every kernel's NR_CPUS,
// and so low that a hostile list cannot exhaust memory.
const maxID = 1 << 16

func parseSet[Of any](list string) (Set[Of], error) {
	if list == "" {
		return Set[Of]{}, nil
	}
	var ids []int
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		first, err := parseID(lo)
		if err != nil {
			return Set[Of]{}, fmt.Errorf("list %q: %w", list, err)
		}
		last := first
		if isRange {
			if last, err = parseID(hi); err != nil {
				return Set[Of]{}, fmt.Errorf("list %q: %w", list, err)
			}
		}
		if last < first {
			return Set[Of]{}, fmt.Errorf("list %q: range %q descends", list, part)
		}
		if len(ids)+last-first > 2*maxID {
			return Set[Of]{}, fmt.Errorf("list of %d characters names more than %d ids", len(list), 2*maxID)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	return newSet[Of](cpuset.New(ids...)), nil
}

func parseID(s string) (int, error) {
	if len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not an id", s)
	}
	id, err := strconv.Atoi(s)
	if err != nil || id > maxID {
		return 0, fmt.Errorf("%q is not an id between 0 and %d", s, maxID)
	}
	return id, nil
}
