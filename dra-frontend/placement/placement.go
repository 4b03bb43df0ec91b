// SPDX-License-Identifier: Apache-2.0

// Package placement picks the CPUs of a zone that a claim gets. The scheduler
// has decided the zone and the number. Placement keeps the claim's threads near
// to each other, and leaves whole cores and whole L3s for the next claims. It
// is pure and deterministic: the same free CPUs give the same answer (I8), and
// any number up to all free CPUs can be had (I2).
//
// Packed placement takes a pick that no other pick beats in this order; the
// first difference decides:
//
//   - cores of one kind;
//   - NUMA nodes near to each other;
//   - few sockets;
//   - few NUMA nodes;
//   - few cores of which the claim gets only some threads;
//   - few L3s;
//   - few L3s that are free as a whole;
//   - few L3s of which the claim gets only some CPUs;
//   - few whole cores broken;
//   - the tightest fit, which leaves free CPUs together: of a kind of cores, of
//     NUMA nodes, of L3s, of cores.
package placement

import (
	"fmt"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Placements.
const (
	// Packed takes whole cores, then whole L3s, nearest first.
	Packed = "packed"
	// Spread takes CPUs of as many L3s as possible, then of as many cores.
	Spread = "spread"
)

// Kinds of cores that a claim can want.
const (
	CoresAny         = "any"
	CoresPerformance = string(topology.CPUPerformance)
	CoresEfficiency  = string(topology.CPUEfficiency)
)

// Options are a claim's wishes.
type Options struct {
	// Placement is Packed or Spread; empty is Packed.
	Placement string
	// WholeCores takes all online threads of a core or none.
	WholeCores bool
	// WholeL3 takes all online CPUs of an L3 or none. Placement has no effect
	// then.
	WholeL3 bool
	// Cores is CoresAny, CoresPerformance or CoresEfficiency: the kind of cores
	// to pick from. Empty is CoresAny: one kind if a kind has enough free CPUs.
	Cores string
}

// Pick picks n of the free CPUs, the CPUs of the zone that no claim holds. CPUs
// that the layout lacks count as not free.
func (l *Layout) Pick(free contract.CPUSet, n int, o Options) (contract.CPUSet, error) {
	kind, err := l.wanted(o)
	if err != nil {
		return contract.CPUSet{}, err
	}
	p := l.newPick(free)
	defer l.giveBack(p)
	switch have := p.kindFree[kind]; {
	case n < 0:
		return contract.CPUSet{}, fmt.Errorf("cannot pick %d CPUs", n)
	case o.Placement != "" && o.Placement != Packed && o.Placement != Spread:
		return contract.CPUSet{}, fmt.Errorf("placement %q: want %q or %q", o.Placement, Packed, Spread)
	case n > have && kind != anyKind:
		return contract.CPUSet{}, fmt.Errorf("%d CPUs of %s cores wanted, %d free in the zone", n, l.kinds[kind], have)
	case n > have:
		return contract.CPUSet{}, fmt.Errorf("%d CPUs wanted, %d free in the zone", n, have)
	case n == 0:
		return contract.CPUSet{}, nil
	case o.Placement == Spread && !o.WholeL3:
		err = p.spread(n, kind, o)
	default:
		err = p.pack(n, kind, o)
	}
	if err != nil {
		return contract.CPUSet{}, err
	}
	return contract.CPUs(p.taken...), nil
}

// wanted returns the index of the wanted kind of cores, or anyKind.
func (l *Layout) wanted(o Options) (int, error) {
	switch o.Cores {
	case "", CoresAny:
		return anyKind, nil
	case CoresPerformance, CoresEfficiency:
	default:
		return 0, fmt.Errorf("cores %q: want %q, %q or %q", o.Cores, CoresAny, CoresPerformance, CoresEfficiency)
	}
	if kind := slices.Index(l.kinds, topology.CPUType(o.Cores)); kind >= 0 {
		return kind, nil
	}
	return 0, fmt.Errorf("cores %q: this machine has no such cores, leave the field out", o.Cores)
}

// choices returns the kinds of cores to pick from: the wanted kind, else each
// kind with n free CPUs.
func (p *pick) choices(n, wanted int) []int {
	if wanted != anyKind {
		return []int{wanted}
	}
	var kinds []int
	for kind := anyKind + 1; kind < len(p.kinds); kind++ {
		if p.kindFree[kind] >= n {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// pack takes the n CPUs that cost least.
func (p *pick) pack(n, wanted int, o Options) error {
	var best offer
	for _, kind := range p.choices(n, wanted) {
		if o := p.search(n, kind, o).best(); o.table != nil && o.better(best) {
			best = o
		}
	}
	if best.table == nil {
		s := p.search(n, wanted, o)
		if best = s.best(); best.table == nil {
			return s.refuse()
		}
	}
	best.table.each(n, p.takeClass)
	return nil
}

// takeClass takes n CPUs of the class's cores, one core after the other.
func (p *pick) takeClass(t *table, n int) {
	for c := p.l3s[t.l3].cores.lo; n > 0; c++ {
		if p.alike(c) == t.class.alike {
			k := min(n, t.class.free)
			p.take(c, k)
			n -= k
		}
	}
}

// alike returns the core's properties before the pick.
func (p *pick) alike(core int) alike {
	return alike{p.cores[core].kind, p.cores[core].size(), p.coreFree[core]}
}

// pick is the state of one call of Pick.
type pick struct {
	*Layout
	memory
	// free is true for each free CPU; the counts are of free CPUs of each part.
	// Only free changes when CPUs are taken.
	free                                  []bool
	coreFree, l3Free, placeFree, kindFree []int
	taken                                 []int
}

func (l *Layout) newPick(free contract.CPUSet) *pick {
	var p *pick
	select {
	case p = <-l.spare:
	default: // the first pick, or another pick at the same time
		p = &pick{Layout: l}
	}
	p.reset()
	p.free, p.coreFree, p.l3Free = p.flags.zeros(len(l.cpus)), p.counts.zeros(len(l.cores)), p.counts.zeros(len(l.l3s))
	p.placeFree, p.kindFree, p.taken = p.counts.zeros(len(l.places)), p.counts.zeros(len(l.kinds)), p.taken[:0]
	for id := range free.All() {
		if id < len(l.at) && l.at[id] >= 0 {
			p.free[l.at[id]] = true
			p.coreFree[l.coreOf[l.at[id]]]++
		}
	}
	for i, c := range l.cores {
		p.l3Free[c.l3] += p.coreFree[i]
		p.kindFree[c.kind] += p.coreFree[i]
		p.kindFree[anyKind] += p.coreFree[i]
	}
	for i, c := range l.l3s {
		p.placeFree[c.place] += p.l3Free[i]
	}
	return p
}

// giveBack keeps the memory of a pick for the next one. The memory of a second pick at the same time is dropped.
func (l *Layout) giveBack(p *pick) {
	select {
	case l.spare <- p:
	default:
	}
}

// take takes the first n free CPUs of the core.
func (p *pick) take(core, n int) {
	for at := p.cores[core].lo; n > 0; at++ {
		if p.free[at] {
			p.free[at] = false
			p.taken = append(p.taken, p.cpus[at])
			n--
		}
	}
}
