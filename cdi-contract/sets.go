// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
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
func CPUs(ids ...int) CPUSet { return newSet[cpuIDs](single(ids)) }

// NUMANodes returns the set of the ids.
func NUMANodes(ids ...int) NUMANodeSet { return newSet[nodeIDs](single(ids)) }

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
func (s Set[Of]) List() []int { return slices.AppendSeq(make([]int, 0, s.Size()), s.All()) }

// All yields the ids, sorted.
func (s Set[Of]) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for r := range s.each {
			for id := r.first; id <= r.last; id++ {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// Size returns how many ids the set has.
func (s Set[Of]) Size() int {
	size := 0
	for r := range s.each {
		size += r.last - r.first + 1
	}
	return size
}

// Contains reports whether the set has the id.
func (s Set[Of]) Contains(id int) bool {
	for r := range s.each {
		if r.first <= id && id <= r.last {
			return true
		}
	}
	return false
}

// IsSubsetOf reports whether the other set has all ids of the set.
func (s Set[Of]) IsSubsetOf(other Set[Of]) bool { return s == other || s.Difference(other).IsEmpty() }

// Overlaps reports whether the sets have an id in common.
func (s Set[Of]) Overlaps(other Set[Of]) bool { return !s.Intersection(other).IsEmpty() }

// Empty sets are frequent, and cost the methods below nothing.

// Union returns the ids of all sets.
func (s Set[Of]) Union(others ...Set[Of]) Set[Of] {
	var all []span
	for _, other := range others {
		switch {
		case other.IsEmpty() || other == s:
		case s.IsEmpty():
			s = other
		default:
			all = append(all, other.spans()...)
		}
	}
	if len(all) == 0 {
		return s
	}
	return newSet[Of](append(all, s.spans()...))
}

// Intersection returns the ids that both sets have.
func (s Set[Of]) Intersection(other Set[Of]) Set[Of] {
	if s.IsEmpty() || other.IsEmpty() {
		return Set[Of]{}
	}
	return newSet[Of](intersect(s.spans(), other.spans()))
}

// Difference returns the ids of the set that the other set lacks.
func (s Set[Of]) Difference(other Set[Of]) Set[Of] {
	if s.IsEmpty() || other.IsEmpty() {
		return s
	}
	return newSet[Of](intersect(s.spans(), gaps(other.spans())))
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

// span is the ids from first to last.
type span struct{ first, last int }

func single(ids []int) []span {
	spans := make([]span, len(ids))
	for i, id := range ids {
		spans[i] = span{id, id}
	}
	return spans
}

// newSet returns the set of spans in any order, which may overlap.
func newSet[Of any](spans []span) Set[Of] {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var list []byte
	for len(spans) > 0 {
		r := spans[0]
		for spans = spans[1:]; len(spans) > 0 && spans[0].first <= r.last+1; spans = spans[1:] {
			r.last = max(r.last, spans[0].last)
		}
		if list != nil {
			list = append(list, ',')
		}
		list = strconv.AppendInt(list, int64(r.first), 10)
		if r.last > r.first {
			list = strconv.AppendInt(append(list, '-'), int64(r.last), 10)
		}
	}
	return Set[Of]{list: string(list)}
}

// each yields the set's spans, sorted and with a gap between two. The list is normalised,
// because newSet made it.
func (s Set[Of]) each(yield func(span) bool) {
	for rest := s.list; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, ",")
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		first, err := strconv.Atoi(lo)
		last, lastErr := strconv.Atoi(hi)
		if err = cmp.Or(err, lastErr); err != nil {
			panic(fmt.Sprintf("contract: set with the list %q: %v", s.list, err))
		}
		if !yield(span{first, last}) {
			return
		}
	}
}

func (s Set[Of]) spans() []span {
	return slices.AppendSeq(make([]span, 0, strings.Count(s.list, ",")+1), s.each)
}

// intersect returns the ids that both have, of spans as each yields them.
func intersect(a, b []span) []span {
	var both []span
	for len(a) > 0 && len(b) > 0 {
		if r := (span{max(a[0].first, b[0].first), min(a[0].last, b[0].last)}); r.first <= r.last {
			both = append(both, r)
		}
		if a[0].last < b[0].last {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// gaps returns the ids that are in no span, of spans as each yields them.
func gaps(spans []span) []span {
	out := make([]span, 0, len(spans)+1)
	next := 0
	for _, r := range spans {
		if next < r.first {
			out = append(out, span{next, r.first - 1})
		}
		next = r.last + 1
	}
	return append(out, span{next, math.MaxInt})
}

// maxID bounds CPU and NUMA node ids. It is far above every kernel's NR_CPUS,
// and so low that a hostile list cannot exhaust memory.
const maxID = 1 << 16

func parseSet[Of any](list string) (Set[Of], error) {
	if list == "" {
		return Set[Of]{}, nil
	}
	var spans []span
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
		spans = append(spans, span{first, last})
	}
	return newSet[Of](spans), nil
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
