// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// spread takes CPUs of the kind of cores that has the most cores to spread
// over.
func (p *pick) spread(n, wanted int, o Options) error {
	var order []int
	for _, kind := range p.choices(n, wanted) {
		if candidates := p.roundRobin(kind, o.WholeCores); len(candidates) > len(order) {
			order = candidates
		}
	}
	if o.WholeCores {
		if p.spreadWhole(n, order) || p.spreadWhole(n, p.roundRobin(wanted, true)) {
			return nil
		}
		return p.search(n, wanted, o).refuse()
	}
	if len(order) == 0 {
		order = p.roundRobin(wanted, false)
	}
	p.spreadThreads(n, order)
	return nil
}

// spreadThreads takes CPUs in rounds: first threads of free cores, then threads
// that share a core.
func (p *pick) spreadThreads(n int, order []int) {
	left := slices.Clone(p.coreFree)
	for pass := 0; n > 0; pass++ {
		for _, c := range order {
			// The threads of a broken core that others hold count as passed.
			if n > 0 && left[c] > 0 && p.cores[c].size()-left[c] == pass {
				p.take(c, 1)
				left[c]--
				n--
			}
		}
	}
}

// spreadWhole takes cores in their order as a whole, and tells whether they
// can add up to n. Of cores of several sizes it takes so many of each that they
// do.
func (p *pick) spreadWhole(n int, order []int) bool {
	var classes []class
	for _, c := range order {
		classes = addCore(classes, 0, p.alike(c))
	}
	sum := sumTable(classes, n)
	if !sum.possible(n) {
		return false
	}
	sum.each(n, func(t *table, n int) {
		for _, c := range order {
			if like := p.alike(c); n > 0 && like == t.class.alike {
				p.take(c, like.size)
				n -= like.size
			}
		}
	})
	return true
}

// roundRobin returns the cores of the kind that have free CPUs, one of each L3
// in turn, those L3s first that have most free CPUs.
func (p *pick) roundRobin(kind int, whole bool) []int {
	l3s := make([]int, len(p.l3s))
	for i := range l3s {
		l3s[i] = i
	}
	slices.SortStableFunc(l3s, func(a, b int) int { return cmp.Compare(p.l3Free[b], p.l3Free[a]) })
	var order []int
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, l3 := range l3s {
			c := p.Layout.l3s[l3].cores.lo + turn
			if c >= p.Layout.l3s[l3].cores.hi {
				continue
			}
			more = true
			if like := p.alike(c); like.free > 0 && (kind == anyKind || like.kind == kind) && (!whole || like.free == like.size) {
				order = append(order, c)
			}
		}
	}
	return order
}
