// SPDX-License-Identifier: Apache-2.0

package placement

import "slices"

// search finds the cheapest n of the CPUs that may be taken.
type search struct {
	*pick
	n int
	// kind is the kind of cores to take.
	kind                int
	wholeCores, wholeL3 bool
	// l3s and places count the CPUs of each that may be taken; all is their
	// sum.
	l3s, places []int
	all         int
	// classes of L3 i are from first[i] to first[i+1].
	classes []class
	first   []int
	// ofPlace are the tables of places, made when needed.
	ofPlace []*table
}

func (p *pick) search(n int, kind int, o Options) *search {
	s := &search{
		pick: p, n: n, kind: kind, wholeCores: o.WholeCores, wholeL3: o.WholeL3,
		l3s: p.counts.zeros(len(p.l3s)), places: p.counts.zeros(len(p.places)),
		first: p.counts.zeros(len(p.l3s) + 1), classes: p.classes.take(3 * len(p.l3s))[:0],
	}
	for i, l3 := range p.Layout.l3s {
		s.addL3(i, l3)
		s.first[i+1] = len(s.classes)
		s.places[l3.place] += s.l3s[i]
		s.all += s.l3s[i]
	}
	return s
}

// addL3 sorts the cores of the L3 that may be taken into classes.
func (s *search) addL3(i int, l3 l3) {
	if s.l3Free[i] == 0 || s.wholeL3 && s.l3Free[i] < l3.cpus {
		return
	}
	for c := l3.cores.lo; c < l3.cores.hi; c++ {
		like := s.alike(c)
		if s.kind != anyKind && like.kind != s.kind {
			if s.wholeL3 {
				s.classes, s.l3s[i] = s.classes[:s.first[i]], 0
				return
			}
			continue
		}
		if like.free == 0 || s.wholeCores && like.free < like.size {
			continue
		}
		s.l3s[i] += like.free
		s.classes = addCore(s.classes, s.first[i], like)
	}
}

// addCore counts a core in its class. The classes of its L3 begin at first.
func addCore(classes []class, first int, like alike) []class {
	for i := first; i < len(classes); i++ {
		if classes[i].alike == like {
			classes[i].cores++
			return classes
		}
	}
	return append(classes, class{like, 1})
}

// best returns the cheapest offer: from one L3 if an L3 has all CPUs, from one
// NUMA node, from NUMA nodes near to each other.
func (s *search) best() offer {
	best := s.oneL3()
	if best.table != nil && best.cost.partialCores() <= s.leastPartial() {
		return best // every other offer takes more L3s
	}
	for _, radius := range s.radii {
		for _, places := range s.within(radius) {
			best = s.choose(best, offer{table: s.nodesTable(places), radius: radius})
		}
		if best.table != nil {
			break
		}
	}
	return best
}

// oneL3 returns the cheapest offer from one L3.
func (s *search) oneL3() offer {
	var best offer
	if len(s.l3s) == 0 || slices.Max(s.l3s) < s.n {
		return best
	}
	for i, free := range s.l3s {
		if free < s.n {
			continue
		}
		before := s.tables.position()
		t, place := s.l3Table(i, s.n), s.Layout.l3s[i].place
		t.charge(s.n, func(n int) cost { return s.nodeCost(place, n).plus(cost{spans: oneSocket}) })
		if o := s.choose(best, offer{table: t}); o.table == t {
			best = o
		} else {
			s.tables.back(before)
		}
	}
	return best
}

func (s *search) choose(best, o offer) offer {
	if !o.table.possible(s.n) {
		return best
	}
	o.n, o.cost = s.n, o.table.cost[s.n]
	if s.kind != anyKind {
		o.kind = loss(s.kindFree[s.kind], s.n)
	}
	if o.better(best) {
		return o
	}
	return best
}

// leastPartial returns the least number of cores that n CPUs take only in part,
// whichever CPUs are free; 0 if it is unknown.
func (s *search) leastPartial() int {
	if size := s.coreSize[s.kind]; size > 0 && s.n%size > 0 {
		return 1
	}
	return 0
}

// l3Table makes the table of an L3. Numbers below from are not needed.
func (s *search) l3Table(i, from int) *table {
	var t *table
	for at, last := s.first[i], s.first[i+1]-1; at <= last; at++ {
		t = s.tables.merge(t, s.tables.class(s.classes[at], i, s.n, s.wholeCores || s.wholeL3), onlyIf(at == last, from), s.n)
	}
	whole, free := s.Layout.l3s[i].cpus, s.l3Free[i]
	t.charge(from, func(n int) cost {
		if s.wholeL3 && n < whole {
			return impossible
		}
		c := cost{spans: oneL3, loses: loss(free, n) * l3Loss}
		if free == whole {
			c.breaks = oneUsedL3
		}
		if n < whole {
			c.breaks += onePartialL3
		}
		return c
	})
	return t
}

// placeTable returns the table of a place. Numbers below from are not needed. Only a table with all
// numbers is kept.
func (s *search) placeTable(i, from int) *table {
	if s.ofPlace == nil {
		s.ofPlace = make([]*table, len(s.places))
	}
	if s.ofPlace[i] != nil {
		return s.ofPlace[i]
	}
	var t *table
	l3s, later := s.Layout.places[i].l3s, s.places[i]
	for l3 := l3s.lo; l3 < l3s.hi; l3++ {
		if s.l3s[l3] > 0 {
			later -= s.l3s[l3]
			t = s.tables.merge(t, s.l3Table(l3, 0), max(0, from-later), s.n)
		}
	}
	t.charge(from, func(n int) cost { return s.nodeCost(i, n) })
	if from == 0 {
		s.ofPlace[i] = t
	}
	return t
}

func (s *search) nodeCost(place, n int) cost {
	return cost{spans: oneNode, loses: loss(s.placeFree[place], n) * nodeLoss}
}

func onlyIf(is bool, n int) int {
	if is {
		return n
	}
	return 0
}

// nodesTable makes the table of places. The search reads only its cost of n CPUs. So a table leaves
// out each number that stays below n even with all CPUs of the places that are not in the table.
func (s *search) nodesTable(places []int) *table {
	var all *table
	// A single place needs only n. Several places share cached tables, which have all numbers.
	total, fromOfPlace := s.sum(places), onlyIf(len(places) == 1, s.n)
	// later counts the CPUs of the places that all lacks. laterOwn counts the CPUs of this socket's
	// places that t lacks.
	for later := total; len(places) > 0; {
		socket := s.Layout.places[places[0]].socket
		own := 1
		for own < len(places) && s.Layout.places[places[own]].socket == socket {
			own++
		}
		laterOwn := s.sum(places[:own])
		from := max(0, s.n-(total-laterOwn))
		later -= laterOwn
		var t *table
		for _, i := range places[:own] {
			laterOwn -= s.places[i]
			t = s.tables.merge(t, s.placeTable(i, fromOfPlace), max(0, from-laterOwn), s.n)
		}
		if own == 1 {
			t = s.tables.copy(t)
		}
		t.charge(from, func(int) cost { return cost{spans: oneSocket} })
		all = s.tables.merge(all, t, max(0, s.n-later), s.n)
		places = places[own:]
	}
	return all
}

// sum returns the number of CPUs of the places that may be taken.
func (s *search) sum(places []int) (all int) {
	for _, i := range places {
		all += s.places[i]
	}
	return all
}

// within returns the sets of places that have n CPUs together and are within
// the radius of one of the places.
func (s *search) within(radius int) [][]int {
	var sets [][]int
	for a, free := range s.places {
		if free == 0 {
			continue
		}
		var set []int
		sum := 0
		for b, free := range s.places {
			if free > 0 && s.distance[a][b] <= radius {
				set = append(set, b)
				sum += free
			}
		}
		if sum >= s.n && !slices.ContainsFunc(sets, func(o []int) bool { return slices.Equal(o, set) }) {
			sets = append(sets, set)
		}
	}
	return sets
}
