// SPDX-License-Identifier: Apache-2.0

// Package placement picks which CPUs of a zone a claim gets. The scheduler has
// decided the zone and the number; what is left is to pick them so that the
// claim's threads are near to each other and the next claims find whole cores
// and whole L3s. It is pure and deterministic: the same free CPUs give the same
// answer (I8), and any number up to the free ones can be had (I2).
//
// Order of what packed placement wants: one NUMA node; whole cores; one L3;
// no core newly broken; the tightest fit, which leaves large free parts whole.
// A number that no NUMA node has free takes the nearest nodes.
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
	// WholeCores takes all threads of a core or none.
	WholeCores bool
	// WholeL3 takes all CPUs of an L3 or none; placement does not matter then.
	WholeL3 bool
	// Cores is CoresAny, CoresPerformance or CoresEfficiency: only CPUs of such
	// cores are picked. Empty is CoresAny.
	Cores string
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
	if kind := topology.CPUType(o.Cores); l.kinds[kind] {
		return kind, nil
	}
	return "", fmt.Errorf("cores %q: this machine has no such cores, leave the field out", o.Cores)
}

// Pick picks n of the free CPUs. free are those of the zone that no claim
// holds; CPUs that the layout does not have count as not free.
func (l *Layout) Pick(free cpuset.CPUSet, n int, o Options) (cpuset.CPUSet, error) {
	kind, err := l.kind(o)
	if err != nil {
		return cpuset.New(), err
	}
	p := newPick(l, free, kind)
	switch {
	case n < 0:
		return cpuset.New(), fmt.Errorf("cannot pick %d CPUs", n)
	case o.Placement != "" && o.Placement != Packed && o.Placement != Spread:
		return cpuset.New(), fmt.Errorf("placement %q: want %q or %q", o.Placement, Packed, Spread)
	case n > p.tally[levelMachine][0].free && kind != "":
		return cpuset.New(), fmt.Errorf("%d CPUs of %s cores wanted, %d free in the zone", n, kind, p.tally[levelMachine][0].free)
	case n > p.tally[levelMachine][0].free:
		return cpuset.New(), fmt.Errorf("%d CPUs wanted, %d free in the zone", n, p.tally[levelMachine][0].free)
	case n == 0:
		return cpuset.New(), nil
	case o.WholeL3:
		return p.wholeL3s(n)
	case o.WholeCores:
		return p.wholeCores(n, o.Placement == Spread)
	case o.Placement == Spread:
		p.spread(n)
	default:
		p.pack(n)
	}
	return cpuset.New(p.taken...), nil
}

// tally counts free CPUs, and those of them in cores that are free as a whole.
type tally struct{ whole, free int }

// pick is the state of one call.
type pick struct {
	*Layout
	// rest is the free CPUs of each core, in order.
	rest  [][]int
	tally [levels][]tally
	taken []int
	// start is the place of the first CPUs taken, -1 before; used are the L3s
	// that CPUs were taken from.
	start int
	used  []bool
}

// newPick counts the free CPUs, of cores of one kind if kind is set.
func newPick(l *Layout, free cpuset.CPUSet, kind topology.CPUType) *pick {
	p := &pick{Layout: l, rest: make([][]int, len(l.cores)), start: -1, used: make([]bool, len(l.coresOf))}
	for lv := range levels {
		p.tally[lv] = make([]tally, max(1, len(l.groups[lv])))
	}
	store := make([]int, 0, len(l.coreOf))
	for i, c := range l.cores {
		from := len(store)
		for _, id := range c.cpus {
			if (kind == "" || c.kind == kind) && free.Contains(id) {
				store = append(store, id)
			}
		}
		p.rest[i] = store[from:len(store):len(store)]
		p.count(i, +1)
	}
	return p
}

// whole tells whether no claim holds a thread of the core.
func (p *pick) whole(core int) bool { return len(p.rest[core]) == len(p.cores[core].cpus) }

// count adds the core's free CPUs to the tallies, or takes them off.
func (p *pick) count(core, sign int) {
	n := sign * len(p.rest[core])
	for lv := range levels {
		t := &p.tally[lv][p.groupOf[lv][p.cores[core].l3]]
		t.free += n
		if p.whole(core) {
			t.whole += n
		}
	}
}

// take takes the first n free CPUs of the core.
func (p *pick) take(core, n int) {
	if n == 0 {
		return
	}
	p.count(core, -1)
	p.taken = append(p.taken, p.rest[core][:n]...)
	p.rest[core] = p.rest[core][n:]
	p.count(core, +1)
	l3 := p.cores[core].l3
	p.used[l3] = true
	if p.start < 0 {
		p.start = p.groupOf[levelPlace][l3]
	}
}
