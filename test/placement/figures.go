// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/bits"
	"slices"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// figures has the faults and the costs of a placer.
type figures struct {
	claims, wholeL3s int
	// wider counts claims with more NUMA nodes than the free CPUs of the zone
	// required, or with the fewest nodes and more L3s. split counts cores with only
	// some threads in a claim, beyond the fewest possible. refused counts claims for a
	// whole L3 that got only some CPUs of an L3. Kubelet gets no request for a whole
	// L3: such a claim may count for kubelet although an L3 is free.
	wider, split, refused int
	time                  time.Duration
	allocations           uint64
}

func (f figures) fragmentation() int { return f.wider + f.split + f.refused }

func (f *figures) add(o figures) {
	f.claims += o.claims
	f.wholeL3s += o.wholeL3s
	f.wider += o.wider
	f.split += o.split
	f.refused += o.refused
	f.time += o.time
	f.allocations += o.allocations
}

// book has the CPUs of each NUMA node, L3, core and kind of core.
type book struct {
	nodes, l3s, cores, kinds []cpuset.CPUSet
}

func newBook(m topology.Machine) book {
	return book{
		nodes: parts(m, func(c topology.CPU) any { return c.Node }), l3s: parts(m, func(c topology.CPU) any { return c.L3 }),
		cores: parts(m, func(c topology.CPU) any { return c.Core }), kinds: parts(m, func(c topology.CPU) any { return c.Type }),
	}
}

func parts(m topology.Machine, id func(topology.CPU) any) []cpuset.CPUSet {
	index := make(map[any]int)
	var members [][]int
	for _, c := range m.CPUs {
		i, seen := index[id(c)]
		if !seen {
			i = len(members)
			index[id(c)] = i
			members = append(members, nil)
		}
		members[i] = append(members[i], c.ID)
	}
	var out []cpuset.CPUSet
	for _, ids := range members {
		out = append(out, cpuset.New(ids...))
	}
	return out
}

// judge returns the figures of a claim that got these CPUs of the zone's free CPUs.
func (b book) judge(c claim, free, got cpuset.CPUSet) figures {
	f := figures{claims: 1}
	nodes, l3s := spanned(b.nodes, got), spanned(b.l3s, got)
	leastNodes, leastL3s, leastPartial := b.least(free, c.cpus)
	if nodes > leastNodes || nodes == leastNodes && l3s > leastL3s {
		f.wider = 1
	}
	if partial := b.partial(got); nodes <= leastNodes && partial > leastPartial {
		f.split = partial - leastPartial
	}
	if c.wholeL3 {
		f.wholeL3s = 1
		if slices.ContainsFunc(b.l3s, func(l3 cpuset.CPUSet) bool {
			n := l3.Intersection(got).Size()
			return n > 0 && n < l3.Size()
		}) {
			f.refused = 1
		}
	}
	return f
}

func spanned(groups []cpuset.CPUSet, got cpuset.CPUSet) int {
	n := 0
	for _, g := range groups {
		if !g.Intersection(got).IsEmpty() {
			n++
		}
	}
	return n
}

// partial counts the cores with only some threads in got.
func (b book) partial(got cpuset.CPUSet) int {
	count := 0
	for _, c := range b.cores {
		if n := c.Intersection(got).Size(); n > 0 && n < c.Size() {
			count++
		}
	}
	return count
}

// least returns the fewest NUMA nodes that n CPUs can have and, with that many nodes,
// the fewest L3s and the fewest partial cores. It tries all sets of NUMA nodes.
func (b book) least(free cpuset.CPUSet, n int) (nodes, l3s, partial int) {
	nodes = len(b.nodes) + 1
	for mask := uint(1); mask < 1<<len(b.nodes); mask++ {
		var have cpuset.CPUSet
		if bits.OnesCount(mask) > nodes {
			continue
		}
		var ids []int
		for i, node := range b.nodes {
			if mask>>i&1 == 1 {
				ids = append(ids, node.Intersection(free).UnsortedList()...)
			}
		}
		if len(ids) < n {
			continue
		}
		have = cpuset.New(ids...)
		if count := bits.OnesCount(mask); count < nodes {
			nodes, l3s, partial = count, len(b.l3s), len(b.cores)
		}
		l3s, partial = min(l3s, fewest(b.l3s, have, n)), min(partial, b.leastPartial(have, n))
	}
	return nodes, l3s, partial
}

// fewest returns the smallest number of groups that have n CPUs together.
func fewest(groups []cpuset.CPUSet, have cpuset.CPUSet, n int) int {
	var sizes []int
	for _, g := range groups {
		sizes = append(sizes, g.Intersection(have).Size())
	}
	slices.Sort(sizes)
	count := 0
	for ; n > 0; count++ {
		n -= sizes[len(sizes)-1-count]
	}
	return count
}

// leastPartial returns the fewest partial cores that n CPUs can have. All CPUs are of
// one kind of core if a kind has n CPUs.
func (b book) leastPartial(have cpuset.CPUSet, n int) int {
	least := -1
	for _, kind := range b.kinds {
		if of := have.Intersection(kind); of.Size() >= n {
			if count := b.partialOf(of, n); least < 0 || count < least {
				least = count
			}
		}
	}
	if least < 0 {
		return 0 // no claim of several kinds is counted as split
	}
	return least
}

// partialOf is leastPartial for cores of one kind.
func (b book) partialOf(have cpuset.CPUSet, n int) int {
	var whole, broken []cpuset.CPUSet
	for _, c := range b.cores {
		switch of := c.Intersection(have); of.Size() {
		case 0:
		case c.Size():
			whole = append(whole, c)
		default:
			broken = append(broken, of)
		}
	}
	if len(whole) > 0 {
		taken := min(n/whole[0].Size(), len(whole))
		n -= taken * whole[0].Size()
		if taken < len(whole) {
			return min(n, 1)
		}
	}
	return fewest(broken, have, n)
}
