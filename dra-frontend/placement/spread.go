// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// spreading is a way to spread CPUs over cores of one kind, or of any.
type spreading struct {
	// l3s is how many L3s it uses; cores is how many cores it could use.
	l3s, cores int
	// take takes the CPUs; nil where they cannot be had.
	take func()
}

func (s spreading) wider(than spreading) bool {
	return s.take != nil && (than.take == nil || cmp.Or(cmp.Compare(s.l3s, than.l3s), cmp.Compare(s.cores, than.cores)) > 0)
}

// spread takes CPUs of the kind of cores that is on the most L3s, else of the
// kind that has the most cores to spread over.
func (p *pick) spread(n, wanted int, o Options) error {
	way := p.spreadThreads
	if o.WholeCores {
		way = p.spreadCores
	}
	var best spreading
	for _, kind := range p.choices(n, wanted) {
		if s := way(n, kind); s.wider(best) {
			best = s
		}
	}
	if best.take == nil {
		best = way(n, wanted)
	}
	if best.take == nil {
		return p.search(n, wanted, o).refuse()
	}
	best.take()
	return nil
}

// turn is when a free CPU is taken. The fields decide in their order, less is
// sooner.
type turn struct {
	// later is 0 for the CPU that comes first in its L3, 1 for every other one.
	later int
	// busy is twice the number of threads of the core that are in use by then,
	// and one more if the claim has one of them.
	busy int
	// round counts the CPUs of the L3 that are equal so far; l3 is the place of
	// the L3 in its order.
	round, l3 int
	core      int
}

func (t turn) compare(o turn) int {
	return cmp.Or(cmp.Compare(t.later, o.later), cmp.Compare(t.busy, o.busy), cmp.Compare(t.round, o.round), cmp.Compare(t.l3, o.l3))
}

// spreadThreads takes one CPU of each L3, then CPUs of cores of which the claim
// has none, then second threads: always those first beside which least runs,
// and the L3s in turn.
func (p *pick) spreadThreads(n, kind int) spreading {
	s := p.search(n, kind, Options{})
	l3s, cores := s.freest(), 0
	turns := make([]turn, 0, s.all)
	for at, l3 := range l3s {
		first := len(turns)
		turns = s.turns(turns, l3, at)
		cores += s.cores(l3)
		soonest := first
		for i := range turns[first:] {
			if turns[first+i].compare(turns[soonest]) < 0 {
				soonest = first + i
			}
		}
		turns[soonest].later = 0
	}
	if len(turns) < n {
		return spreading{}
	}
	slices.SortFunc(turns, turn.compare) // no two are equal
	return spreading{min(n, len(l3s)), cores, func() {
		for _, t := range turns[:n] {
			p.take(t.core, 1)
		}
	}}
}

// turns appends the turns of the CPUs of an L3, which is at a place in the
// order of L3s.
func (s *search) turns(turns []turn, l3, at int) []turn {
	first := len(turns)
	for c := s.Layout.l3s[l3].cores.lo; c < s.Layout.l3s[l3].cores.hi; c++ {
		like := s.alike(c)
		if s.kind != anyKind && like.kind != s.kind {
			continue
		}
		for own := range like.free {
			turns = append(turns, turn{later: 1, busy: 2*(like.size-like.free+own) + min(own, 1), l3: at, core: c})
		}
	}
	var rounds []int
	for i := first; i < len(turns); i++ {
		busy := turns[i].busy
		rounds = append(rounds, make([]int, max(0, busy+1-len(rounds)))...)
		turns[i].round = rounds[busy]
		rounds[busy]++
	}
	return turns
}

// spreadCores takes whole cores: of the ways to make n of them that are on the
// most L3s, one that takes as equal numbers of CPUs from these as can be.
func (p *pick) spreadCores(n, kind int) spreading {
	s := p.search(n, kind, Options{WholeCores: true})
	s.tables = newTables(n)
	l3s, cores := s.freest(), 0
	var all *table
	for _, l3 := range l3s {
		var t *table
		for _, c := range s.classes[s.first[l3]:s.first[l3+1]] {
			t = s.tables.merge(t, s.tables.class(c, l3, n, true), 0, n)
		}
		for k, c := range t.cost {
			if c.possible() {
				t.cost[k] = cost{loses: uint64(k * k), cores: c.cores}
			}
		}
		t.cost[0] = cost{spans: oneL3} // here an L3 costs where it is left out
		all = s.tables.merge(all, t, 0, n)
		cores += s.cores(l3)
	}
	if !all.possible(n) {
		return spreading{}
	}
	return spreading{len(l3s) - int(all.cost[n].spans), cores, func() { all.each(n, p.takeClass) }}
}

// cores is how many cores of the L3 may be taken.
func (s *search) cores(l3 int) int {
	n := 0
	for _, c := range s.classes[s.first[l3]:s.first[l3+1]] {
		n += c.cores
	}
	return n
}

// freest returns the L3s that have CPUs to take, those with most of them first.
func (s *search) freest() []int {
	order := make([]int, 0, len(s.l3s))
	for i, free := range s.l3s {
		if free > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.l3s[b], s.l3s[a]) })
	return order
}
