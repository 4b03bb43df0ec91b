// SPDX-License-Identifier: Apache-2.0

package placement

// alike is what cores of a class have in common: their kind, how many threads
// they have and how many of them are free.
type alike struct{ kind, size, free int }

// class is the cores of an L3 that are alike.
type class struct {
	alike
	cores int
}

// cost is the cheapest way to take n CPUs: core after core, because that
// touches the fewest, and breaks at most one.
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

// table has, for every number of CPUs, the cheapest way to take them from a
// part of the machine: from a class of cores of an L3, or from two tables.
type table struct {
	// cost is indexed by the number of CPUs.
	cost []cost
	// took[n] is how many of n CPUs come from right, the others from left.
	left, right *table
	took        []int32
	// class and l3 are set where left is not.
	class class
	l3    int
}

func (t *table) most() int { return len(t.cost) - 1 }

// possible tells whether n CPUs can be taken.
func (t *table) possible(n int) bool { return t != nil && n <= t.most() && t.cost[n].possible() }

// charge adds what taking any CPUs of the part as a whole costs. Numbers below
// from are of no interest.
func (t *table) charge(from int, of func(n int) cost) {
	for n := max(from, 1); n < len(t.cost); n++ {
		if t.cost[n].possible() {
			t.cost[n] = t.cost[n].plus(of(n))
		}
	}
}

// each calls visit with every class that the n CPUs come from, and how many.
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

// tables makes tables. It allocates costs by the chunk.
type tables struct {
	chunk int
	costs []cost
	tooks []int32
	store []table
}

// newTables has room for those of an L3 with cores of a few classes.
func newTables(n int) tables {
	chunk := min(6*(n+1), 400)
	return tables{chunk, make([]cost, chunk), make([]int32, chunk), make([]table, storeChunk)}
}

const storeChunk = 16

func cut[T any](from *[]T, n, atLeast int) []T {
	if len(*from) < n {
		*from = make([]T, max(n, atLeast))
	}
	out := (*from)[:n:n]
	*from = (*from)[n:]
	return out
}

// class makes the table of a class. whole takes its cores as a whole.
func (ts *tables) class(c class, l3, limit int, whole bool) *table {
	t := &cut(&ts.store, 1, storeChunk)[0]
	*t = table{class: c, l3: l3, cost: cut(&ts.costs, min(limit, c.cores*c.free)+1, ts.chunk)}
	for n := range t.cost {
		t.cost[n] = c.cost(n, whole)
	}
	return t
}

// merge makes the table of two parts, of which left may be missing. Numbers
// below from are of no interest, nor are those above limit.
func (ts *tables) merge(left, right *table, from, limit int) *table {
	if left == nil {
		return right
	}
	size := min(limit, left.most()+right.most()) + 1
	t := &cut(&ts.store, 1, storeChunk)[0]
	*t = table{left: left, right: right, cost: cut(&ts.costs, size, ts.chunk), took: cut(&ts.tooks, size, ts.chunk)}
	for n := range t.cost {
		t.cost[n] = impossible
	}
	// With equal cost the left one gives the more.
	for k, added := range right.cost {
		if !added.possible() {
			continue
		}
		for n := max(from, k); n < min(size, len(left.cost)+k); n++ {
			if left.cost[n-k].spans+added.spans > t.cost[n].spans {
				continue // most are worse in the first word
			}
			if sum := left.cost[n-k].plus(added); sum.less(t.cost[n]) {
				t.cost[n], t.took[n] = sum, int32(k)
			}
		}
	}
	return t
}

// copy copies a table, to be charged apart from the original.
func (ts *tables) copy(from *table) *table {
	t := &cut(&ts.store, 1, storeChunk)[0]
	*t = *from
	t.cost = cut(&ts.costs, len(from.cost), ts.chunk)
	copy(t.cost, from.cost)
	return t
}
