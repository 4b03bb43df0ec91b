// SPDX-License-Identifier: Apache-2.0

package placement

// alike is what the cores of a class have in common: kind, number of threads
// and number of free threads.
type alike struct{ kind, size, free int }

// class is the cores of one L3 that are alike.
type class struct {
	alike
	cores int
}

// cost returns the least cost of n CPUs: core after core, because that uses the
// fewest cores and breaks at most one.
func (c class) cost(n int, whole bool) cost {
	full, rest := n/c.free, n%c.free
	out := cost{cores: uint64(full) * loss(c.free, c.free)}
	if rest > 0 {
		if whole {
			return impossible
		}
		out.cores += loss(c.free, rest)
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

// table has the cheapest way to take each number of CPUs from a part of the
// machine: from a class of cores of an L3, or from two tables.
type table struct {
	// cost is indexed by the number of CPUs.
	cost []cost
	// took[n] of n CPUs come from right, the rest from left.
	left, right *table
	took        []int32
	// class and l3 are set if left is nil.
	class class
	l3    int
}

func (t *table) most() int { return len(t.cost) - 1 }

// possible reports whether n CPUs can be taken.
func (t *table) possible(n int) bool { return t != nil && n <= t.most() && t.cost[n].possible() }

// charge adds the cost of n CPUs from the part as a whole, for each n that is
// at least from.
func (t *table) charge(from int, of func(n int) cost) {
	for n := max(from, 1); n < len(t.cost); n++ {
		if t.cost[n].possible() {
			t.cost[n] = t.cost[n].plus(of(n))
		}
	}
}

// each calls visit for each class that the n CPUs come from, with the number of
// its CPUs.
func (t *table) each(n int, visit func(t *table, n int)) {
	switch {
	case n == 0:
	case t.left == nil:
		visit(t, n)
	default:
		k := int(t.took[n])
		t.left.each(n-k, visit)
		t.right.each(k, visit)
	}
}

// tables makes tables.
type tables struct {
	costs arena[cost]
	tooks arena[int32]
	store arena[table]
}

// position is how much of the memory of tables was taken.
type position struct{ costs, tooks, store int }

func (ts *tables) position() position { return position{ts.costs.used, ts.tooks.used, ts.store.used} }

// back takes back the memory of the tables that were made since the position.
func (ts *tables) back(to position) {
	ts.costs.back(to.costs)
	ts.tooks.back(to.tooks)
	ts.store.back(to.store)
}

// class makes the table of a class. whole allows whole cores only.
func (ts *tables) class(c class, l3, limit int, whole bool) *table {
	t := &ts.store.take(1)[0]
	*t = table{class: c, l3: l3, cost: ts.costs.take(min(limit, c.cores*c.free) + 1)}
	for n := range t.cost {
		t.cost[n] = c.cost(n, whole)
	}
	return t
}

// merge makes the table of two parts; left may be nil. Numbers below from and
// above limit are not needed.
func (ts *tables) merge(left, right *table, from, limit int) *table {
	if left == nil {
		return right
	}
	size := min(limit, left.most()+right.most()) + 1
	t := &ts.store.take(1)[0]
	*t = table{left: left, right: right, cost: ts.costs.take(size), took: ts.tooks.take(size)}
	for n := range t.cost {
		t.cost[n] = impossible
	}
	// Of equal costs, left gives the more CPUs.
	for k, added := range right.cost {
		first, end := max(from, k), min(size, len(left.cost)+k)
		if !added.possible() || first >= end {
			continue
		}
		best, took := t.cost[first:end], t.took[first:end]
		for i, c := range left.cost[first-k : end-k] {
			if c.spans+added.spans > best[i].spans {
				continue // most are worse in the first word
			}
			if sum := c.plus(added); sum.less(best[i]) {
				best[i], took[i] = sum, int32(k)
			}
		}
	}
	return t
}

// copy copies a table, so that a charge does not change the original.
func (ts *tables) copy(from *table) *table {
	t := &ts.store.take(1)[0]
	*t = *from
	t.cost = ts.costs.take(len(from.cost))
	copy(t.cost, from.cost)
	return t
}
