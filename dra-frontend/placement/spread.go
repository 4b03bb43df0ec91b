// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// spreading is a way to spread CPUs over cores of one kind, or of any kind.
type spreading struct {
	// l3s is how many L3s are used, cores is how many cores could be used.
	l3s, cores int
	// take takes the CPUs; nil if they cannot be had.
	take func()
}

func (s spreading) wider(than spreading) bool {
	return s.take != nil && (than.take == nil || cmp.Or(cmp.Compare(s.l3s, than.l3s), cmp.Compare(s.cores, than.cores)) > 0)
}

// spread takes CPUs of the kind of cores that is on the most L3s; of several
// such kinds, the kind with the most cores.
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

// turn orders the free CPUs: the lowest turn is taken first. A turn is several numbers in one word, of which the first difference
// decides: words sort fast. There is room for machines of up to 65535 CPUs and for cores of up to 16383 threads. The lowest 16 bits
// are the core.
type turn uint64

const (
	// laterTurn is added for every CPU of an L3 but the first.
	laterTurn turn = 1 << 63
	// ownThread is added if the claim has a thread of the core before this turn, and busyThread for each thread of the core that
	// is in use before this turn.
	ownThread  turn = 1 << 48
	busyThread      = 2 * ownThread
	// oneRound counts the CPUs of the L3 with the same number of threads in use, and oneTurnL3 the L3's position in the order of L3s.
	oneRound  turn = 1 << 32
	oneTurnL3 turn = 1 << 16
)

// core returns the core of the CPU.
func (t turn) core() int { return int(t % oneTurnL3) }

// spreadThreads takes one CPU of each L3, then CPUs of the cores with the
// fewest threads in use: cores that the claim does not have first, and from the
// L3s in turn.
func (p *pick) spreadThreads(n, kind int) spreading {
	s := p.search(n, kind, Options{})
	l3s, cores := s.freest(), 0
	turns, rounds := p.turns.take(s.all)[:0], []turn(nil)
	for at, l3 := range l3s {
		first := len(turns)
		turns, rounds = s.turns(turns, rounds[:0], l3, at)
		cores += s.cores(l3)
		soonest := slices.Index(turns[first:], slices.Min(turns[first:]))
		turns[first+soonest] -= laterTurn
	}
	if len(turns) < n {
		return spreading{}
	}
	slices.Sort(turns) // no two are equal
	return spreading{min(n, len(l3s)), cores, func() {
		for _, t := range turns[:n] {
			p.take(t.core(), 1)
		}
	}}
}

// turns appends the turns of the CPUs of an L3. at is the L3's position in the
// order of L3s. rounds has the next round for each number of threads in use. turns returns rounds so that the next L3 reuses its
// memory.
func (s *search) turns(turns, rounds []turn, l3, at int) ([]turn, []turn) {
	for c := s.Layout.l3s[l3].cores.lo; c < s.Layout.l3s[l3].cores.hi; c++ {
		like := s.alike(c)
		if s.kind != anyKind && like.kind != s.kind {
			continue
		}
		for own := range like.free {
			busy := turn(like.size-like.free+own)*busyThread + turn(min(own, 1))*ownThread
			for len(rounds) <= int(busy/ownThread) {
				rounds = append(rounds, 0)
			}
			round := &rounds[busy/ownThread]
			turns = append(turns, laterTurn+busy+*round+turn(at)*oneTurnL3+turn(c))
			*round += oneRound
		}
	}
	return turns, rounds
}

// spreadCores takes whole cores with n CPUs from as many L3s as possible, in
// numbers as equal as possible.
func (p *pick) spreadCores(n, kind int) spreading {
	s := p.search(n, kind, Options{WholeCores: true})
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
		t.cost[0] = cost{spans: oneL3} // here the cost is of an L3 that is left out
		all = s.tables.merge(all, t, 0, n)
		cores += s.cores(l3)
	}
	if !all.possible(n) {
		return spreading{}
	}
	return spreading{len(l3s) - int(all.cost[n].spans), cores, func() { all.each(n, p.takeClass) }}
}

// cores returns how many cores of the L3 may be taken.
func (s *search) cores(l3 int) int {
	n := 0
	for _, c := range s.classes[s.first[l3]:s.first[l3+1]] {
		n += c.cores
	}
	return n
}

// freest returns the L3s with CPUs to take, sorted by most CPUs first.
func (s *search) freest() []int {
	order := s.counts.take(len(s.l3s))[:0]
	for i, free := range s.l3s {
		if free > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.l3s[b], s.l3s[a]) })
	return order
}
