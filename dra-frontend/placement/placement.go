// SPDX-License-Identifier: Apache-2.0

// Package placement picks which CPUs of a zone a claim gets. The scheduler has
// decided the zone and the number; what is left is to pick them so that the
// claim's threads are near to each other and the next claims find whole cores
// and whole L3s. It is pure and deterministic: the same free CPUs give the same
// answer (I8), and any number up to the free ones can be had (I2).
//
// What packed placement wants, the first that differs decides: cores of one
// kind; NUMA nodes near to each other; few sockets; few NUMA nodes; few cores of
// which the claim gets only some threads; few L3s; few whole cores broken; few
// whole L3s broken; and the tightest fit, which leaves what is free together:
// of NUMA nodes, of a kind of cores, of L3s, of cores. Of all ways to take the
// CPUs it takes one that no other one beats in that order.
package placement

import (
	"fmt"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"k8s.io/utils/cpuset"
)

// Placements.
const (
	// Packed takes whole cores, then whole L3s, nearest first.
	Packed = "packed"
	// Spread takes one thread per core, over the L3s.
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
	// WholeL3 takes all online CPUs of an L3 or none; placement does not matter
	// then.
	WholeL3 bool
	// Cores is CoresAny, CoresPerformance or CoresEfficiency: only CPUs of such
	// cores are picked. Empty is CoresAny: one kind if one has enough.
	Cores string
}

// Pick picks n of the free CPUs. free are those of the zone that no claim
// holds; CPUs that the layout does not have count as not free.
func (l *Layout) Pick(free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, error) {
	kind, err := l.kind(o)
	if err != nil {
		return cpuset.New(), err
	}
	p := newPick(l, free)
	switch have := p.kindFree[kind]; {
	case n < 0:
		return cpuset.New(), fmt.Errorf("cannot pick %d CPUs", n)
	case o.Placement != "" && o.Placement != Packed && o.Placement != Spread:
		return cpuset.New(), fmt.Errorf("placement %q: want %q or %q", o.Placement, Packed, Spread)
	case n > have && kind != "":
		return cpuset.New(), fmt.Errorf("%d CPUs of %s cores wanted, %d free in the zone", n, kind, have)
	case n > have:
		return cpuset.New(), fmt.Errorf("%d CPUs wanted, %d free in the zone", n, have)
	case n == 0:
		return cpuset.New(), nil
	case o.Placement == Spread && !o.WholeL3:
		err = p.spread(n, kind, o)
	default:
		err = p.pack(n, kind, o)
	}
	if err != nil {
		return cpuset.New(), err
	}
	return cpuset.New(p.taken...), nil
}

// kind checks what kind of cores is wanted; "" is any.
func (l *Layout) kind(o Options) (topology.CPUType, error) {
	switch o.Cores {
	case "", CoresAny:
		return "", nil
	case CoresPerformance, CoresEfficiency:
	default:
		return "", fmt.Errorf("cores %q: want %q, %q or %q", o.Cores, CoresAny, CoresPerformance, CoresEfficiency)
	}
	if _, has := l.coreSize[topology.CPUType(o.Cores)]; has {
		return topology.CPUType(o.Cores), nil
	}
	return "", fmt.Errorf("cores %q: this machine has no such cores, leave the field out", o.Cores)
}

// choices are the kinds of cores to pick from: what is wanted, else each kind
// that has n free.
func (p *pick) choices(n int, wanted topology.CPUType) []topology.CPUType {
	if wanted != "" || len(p.kinds) == 1 {
		return []topology.CPUType{wanted}
	}
	var kinds []topology.CPUType
	for _, kind := range p.kinds {
		if p.kindFree[kind] >= n {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// pack takes the n CPUs that cost least.
func (p *pick) pack(n int, wanted topology.CPUType, o Options) error {
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

// alike tells what the core is like, before anything is taken.
func (p *pick) alike(core int) alike {
	return alike{p.cores[core].kind, p.cores[core].size(), p.coreFree[core]}
}

// pick is the state of one call.
type pick struct {
	*Layout
	// free tells which CPUs are free, the others are how many of each part.
	free             []bool
	coreFree, l3Free []int
	placeFree        []int
	kindFree         map[topology.CPUType]int
	taken            []int
}

func newPick(l *Layout, free cpuset.CPUSet) *pick {
	p := &pick{
		Layout: l, free: make([]bool, len(l.cpus)), kindFree: make(map[topology.CPUType]int, len(l.kinds)+1),
		coreFree: make([]int, len(l.cores)), l3Free: make([]int, len(l.l3s)), placeFree: make([]int, len(l.places)),
	}
	for _, id := range free.UnsortedList() {
		if at, has := l.at[id]; has {
			p.free[at] = true
			p.coreFree[l.coreOf[at]]++
		}
	}
	for i, c := range l.cores {
		p.l3Free[c.l3] += p.coreFree[i]
	}
	for _, kind := range l.kinds {
		for i, c := range l.cores {
			if c.kind == kind {
				p.kindFree[kind] += p.coreFree[i]
			}
		}
		p.kindFree[""] += p.kindFree[kind]
	}
	for i, c := range l.l3s {
		p.placeFree[c.place] += p.l3Free[i]
	}
	return p
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
