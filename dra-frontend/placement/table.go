// SPDX-License-Identifier: Apache-2.0

package placement

import "github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"

// alike is what cores of a class have in common: their kind, how many threads
// they have and how many of them are free.
type alike struct {
	kind       topology.CPUType
	size, free int
}

// class is the cores of an L3 that are alike.
type class struct {
	alike
	cores int
}

// cost is the cheapest way to take n CPUs: core after core, because that
// touches the fewest, and breaks at most one.
func (c class) cost(n int, whole bool) cost {
	full, rest := n/c.free, n%c.free
	out := cost{loses: uint64(full) * loss(c.free, c.free) * coreLoss}
	if rest > 0 {
		if whole {
			return impossible
		}
		out.loses += loss(c.free, rest) * coreLoss
		out.spans = onePartialCore
		if c.free == c.size {
			out.breaks = oneBrokenCore
		}
	}
	if c.free < c.size {
		out.spans += uint64(full) * onePartialCore
	}
	return out
}

// table has, for every number of CPUs, the cheapest way to take them from a
// part of the machine: of a class of cores, or of parts that it is made of.
type table struct {
	// cost is indexed by the number of CPUs.
	cost []cost
	// parts are what the table is made of; took[i][n] is how many of n CPUs
	// come from parts[i], if they come from those up to it.
	parts []*table
	took  [][]int32
	// class and l3 are set where the table is of a class.
	class class
	l3    int
}

func (t *table) most() int { return len(t.cost) - 1 }

// add adds a part. Numbers below from are of no interest, nor are those above
// limit.
func (t *table) add(part *table, from, limit int) {
	t.parts = append(t.parts, part)
	if len(t.parts) == 1 {
		t.cost = append([]cost(nil), part.cost...)
		t.took = append(t.took, nil)
		return
	}
	before := t.cost
	size := min(limit, t.most()+part.most()) + 1
	t.cost = make([]cost, size)
	for n := range t.cost {
		t.cost[n] = impossible
	}
	took := make([]int32, size)
	// With equal cost the earlier parts give the more.
	for k, added := range part.cost {
		if !added.possible() {
			continue
		}
		for n := max(from, k); n < min(size, len(before)+k); n++ {
			if sum := before[n-k].plus(added); sum.less(t.cost[n]) {
				t.cost[n], took[n] = sum, int32(k)
			}
		}
	}
	t.took = append(t.took, took)
}

// charge adds what taking any CPUs of the part as a whole costs.
func (t *table) charge(from int, of func(n int) cost) {
	for n := max(from, 1); n < len(t.cost); n++ {
		if t.cost[n].possible() {
			t.cost[n] = t.cost[n].plus(of(n))
		}
	}
}

// each calls visit with every class that the n CPUs come from, and how many.
func (t *table) each(n int, visit func(t *table, n int)) {
	if len(t.parts) == 0 {
		visit(t, n)
		return
	}
	for i := len(t.parts) - 1; i > 0; i-- {
		k := int(t.took[i][n])
		t.parts[i].each(k, visit)
		n -= k
	}
	t.parts[0].each(n, visit)
}

// classTable is the table of a class.
func classTable(c class, l3, limit int, whole bool) *table {
	t := &table{class: c, l3: l3, cost: make([]cost, min(limit, c.cores*c.free)+1)}
	for n := range t.cost {
		t.cost[n] = c.cost(n, whole)
	}
	return t
}
