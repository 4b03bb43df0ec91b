// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
)

// pack walks down from the machine: into the smallest part that holds all that
// is still wanted, or, where none does, through the largest parts until one does.
func (p *pick) pack(n int) {
	lv, g := levelMachine, 0
	for n > 0 {
		if lv == levelL3 {
			p.fill(g, n)
			return
		}
		if innerLevel, inner, found := p.fit(lv, g, n); found {
			lv, g = innerLevel, inner
			continue
		}
		n -= p.takeLargest(lv, g, n)
	}
}

// pure tells whether n CPUs of the group are whole cores, but for the odd
// remainder.
func (p *pick) pure(lv level, g, n int) bool {
	t := p.tally[lv][g]
	return t.free >= n && t.whole > 0 && t.whole >= n-n%p.threads
}

// fit finds the group within g that n CPUs are best taken from: the order of
// the steps is the order of what packed placement wants.
func (p *pick) fit(lv level, g, n int) (level, int, bool) {
	for _, step := range [...]struct {
		level level
		pure  bool
	}{{levelL3, true}, {levelPlace, true}, {levelL3, false}, {levelPlace, false}, {levelSocket, true}, {levelSocket, false}} {
		if step.level >= lv || lv == levelPlace && !step.pure && p.pure(lv, g, n) {
			continue // in a NUMA node whole cores come before one L3
		}
		best, bestKey := -1, key{}
		for i := p.first(step.level, lv, g); i < p.last(step.level, lv, g); i++ {
			if p.tally[step.level][i].free < n || step.pure && !p.pure(step.level, i, n) && !p.oddRest(step.level, i, n) {
				continue
			}
			if k := p.key(step.level, i, n); best < 0 || k.compare(bestKey) < 0 {
				best, bestKey = i, k
			}
		}
		if best >= 0 {
			return step.level, best, true
		}
	}
	return 0, 0, false
}

// oddRest tells whether less than a core is wanted and broken cores have it.
func (p *pick) oddRest(lv level, g, n int) bool {
	return n < p.threads && p.tally[lv][g].free >= n
}

// first and last bound the groups of level inner in group g of level outer.
func (p *pick) first(inner, outer level, g int) int {
	return p.groupOf[inner][p.groups[outer][g].lo]
}

func (p *pick) last(inner, outer level, g int) int {
	return p.groupOf[inner][p.groups[outer][g].hi-1] + 1
}

// key orders groups that fit: nearest to what is taken, no core broken for it,
// least left over. Equal ones are taken in the layout's order.
type key struct{ near, broken, left int }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.near, o.near), cmp.Compare(k.broken, o.broken), cmp.Compare(k.left, o.left))
}

func (p *pick) key(lv level, g, n int) key {
	k := key{near: p.near(lv, g), left: p.tally[lv][g].free - n}
	if lv == levelL3 && p.breaks(g, n) {
		k.broken = 1
	}
	return k
}

// near is the distance of the group from where the first CPUs were taken, 0
// for an L3 that some were taken from.
func (p *pick) near(lv level, g int) int {
	first := p.groups[lv][g].lo
	if p.start < 0 || lv == levelL3 && p.used[first] {
		return 0
	}
	return p.distance[p.start][p.groupOf[levelPlace][first]]
}

// breaks tells whether filling n CPUs from the L3 breaks a whole core.
func (p *pick) breaks(l3, n int) bool {
	t := p.tally[levelL3][l3]
	for c := p.coresOf[l3].lo; c < p.coresOf[l3].hi; c++ {
		if size := len(p.rest[c]); p.whole(c) && size <= n {
			n -= size
		}
	}
	return n > t.free-t.whole
}

// takeLargest takes the largest parts of the group as a whole, none of which
// holds n: their whole cores if there are enough in the group, else all their
// free CPUs. It stops where a part might hold the rest, and returns how many
// CPUs it took, at least one.
func (p *pick) takeLargest(lv level, g, n int) int {
	pure, inner := p.pure(lv, g, n), lv-1
	amount := func(i int) int {
		if pure {
			return p.tally[inner][i].whole
		}
		return p.tally[inner][i].free
	}
	var parts []int
	for i := p.first(inner, lv, g); i < p.last(inner, lv, g); i++ {
		if amount(i) > 0 {
			parts = append(parts, i)
		}
	}
	slices.SortFunc(parts, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.near(inner, a), p.near(inner, b)), cmp.Compare(amount(b), amount(a)), cmp.Compare(a, b))
	})
	took := 0
	for _, i := range parts {
		rest := n - took
		if size := amount(i); took > 0 && (inner != levelL3 || size >= rest-rest%p.threads) {
			break
		}
		took += p.takeAll(p.groups[inner][i], pure)
	}
	return took
}

// takeAll takes the free CPUs of the L3s, or those in whole cores only.
func (p *pick) takeAll(l3s span, pure bool) int {
	before := len(p.taken)
	for c := p.coresOf[l3s.lo].lo; c < p.coresOf[l3s.hi-1].hi; c++ {
		if !pure || p.whole(c) {
			p.take(c, len(p.rest[c]))
		}
	}
	return len(p.taken) - before
}

// fill takes n CPUs of the L3, which has them: whole cores, then threads of
// broken cores, and breaks a core only if that is not enough.
func (p *pick) fill(l3, n int) {
	var broken []int
	for c := p.coresOf[l3].lo; c < p.coresOf[l3].hi; c++ {
		size := len(p.rest[c])
		switch {
		case size > 0 && !p.whole(c):
			broken = append(broken, c)
		case size <= n:
			p.take(c, size)
			n -= size
		}
	}
	n = p.fillFrom(broken, n)
	if n == 0 {
		return
	}
	smallest, size := -1, math.MaxInt
	for c := p.coresOf[l3].lo; c < p.coresOf[l3].hi; c++ {
		if len(p.rest[c]) > n && len(p.rest[c]) < size {
			smallest, size = c, len(p.rest[c])
		}
	}
	p.take(smallest, n)
}

// fillFrom takes up to n CPUs of broken cores, as few cores as fit, and
// returns how many are missing.
func (p *pick) fillFrom(broken []int, n int) int {
	slices.SortStableFunc(broken, func(a, b int) int { return cmp.Compare(len(p.rest[b]), len(p.rest[a])) })
	larger := -1
	for _, c := range broken {
		size := len(p.rest[c])
		if size > n {
			larger = c
			continue
		}
		p.take(c, size)
		n -= size
	}
	if n > 0 && larger >= 0 {
		p.take(larger, n)
		n = 0
	}
	return n
}
