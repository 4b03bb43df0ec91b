// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// span is a range of indexes in the layout: lo to hi-1.
type span struct{ lo, hi int }

func (s span) size() int { return s.hi - s.lo }

// core has its CPUs as a span of the layout's CPUs, and its L3 and kind.
type core struct {
	span
	l3, kind int
}

// l3 is a last-level cache with its cores.
type l3 struct {
	cores       span
	cpus, place int
}

// place is the part of a NUMA node on one socket, which is the whole node on
// most machines.
type place struct {
	l3s          span
	socket, node int
}

// Layout is the machine in an order that keeps near CPUs together. The order never
// changes.
type Layout struct {
	cpus   []int
	cores  []core
	l3s    []l3
	places []place
	// coreOf is the core of each CPU of cpus; at maps a CPU's id to its index
	// in cpus, -1 for no CPU.
	coreOf, at []int
	// distance is between places, 0 from a place to itself; radii are its
	// values, sorted.
	distance [][]int
	radii    []int
	// kinds are anyKind and the kinds of the machine's cores. coreSize is the
	// number of CPUs of each core of the kind, 0 if cores differ.
	kinds    []topology.CPUType
	coreSize []int
	// spare has at most one earlier pick, whose memory the next pick uses. No answer depends on it.
	spare chan *pick
}

// anyKind is the index that stands for all kinds.
const anyKind = 0

// NewLayout orders the machine. The order of m.CPUs does not matter.
func NewLayout(m topology.Machine) *Layout {
	cpus := slices.SortedFunc(slices.Values(m.CPUs), func(a, b topology.CPU) int {
		return cmp.Or(cmp.Compare(a.Socket, b.Socket), cmp.Compare(a.Node, b.Node), cmp.Compare(a.L3, b.L3),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	l := &Layout{kinds: []topology.CPUType{"any"}, coreSize: []int{0}, spare: make(chan *pick, 1)}
	for i, c := range cpus {
		var prev topology.CPU
		if i > 0 {
			prev = cpus[i-1]
		}
		newPlace := i == 0 || prev.Socket != c.Socket || prev.Node != c.Node
		newL3 := newPlace || prev.L3 != c.L3
		newCore := newL3 || prev.Core != c.Core
		if newPlace {
			l.places = append(l.places, place{l3s: span{len(l.l3s), len(l.l3s)}, socket: c.Socket, node: c.Node})
		}
		if newL3 {
			l.l3s = append(l.l3s, l3{cores: span{len(l.cores), len(l.cores)}, place: len(l.places) - 1})
			l.places[len(l.places)-1].l3s.hi++
		}
		if newCore {
			l.cores = append(l.cores, core{span: span{i, i}, l3: len(l.l3s) - 1, kind: l.kind(c.Type)})
			l.l3s[len(l.l3s)-1].cores.hi++
		}
		l.cores[len(l.cores)-1].hi++
		l.l3s[len(l.l3s)-1].cpus++
		l.cpus, l.coreOf = append(l.cpus, c.ID), append(l.coreOf, len(l.cores)-1)
		for len(l.at) <= c.ID {
			l.at = append(l.at, -1)
		}
		l.at[c.ID] = i
	}
	l.compareCores()
	l.measure(m)
	return l
}

// kind returns the index of a kind of cores, and adds it if it is new.
func (l *Layout) kind(of topology.CPUType) int {
	i := slices.Index(l.kinds, of)
	if i < 0 {
		i = len(l.kinds)
		l.kinds, l.coreSize = append(l.kinds, of), append(l.coreSize, 0)
	}
	return i
}

// compareCores sets coreSize.
func (l *Layout) compareCores() {
	seen := make([]bool, len(l.kinds))
	for _, c := range l.cores {
		for _, kind := range []int{anyKind, c.kind} {
			switch {
			case !seen[kind]:
				seen[kind], l.coreSize[kind] = true, c.size()
			case l.coreSize[kind] != c.size():
				l.coreSize[kind] = 0
			}
		}
	}
}

// otherSocket outweighs every distance between NUMA nodes.
const otherSocket = 1 << 16

func (l *Layout) measure(m topology.Machine) {
	index := make(map[int]int, len(m.NUMANodes))
	for i, n := range m.NUMANodes {
		index[n.ID] = i
	}
	l.distance = make([][]int, len(l.places))
	for i, a := range l.places {
		l.distance[i] = make([]int, len(l.places))
		for j, b := range l.places {
			if i == j {
				continue
			}
			l.distance[i][j] = m.NUMANodes[index[a.node]].Distances[index[b.node]]
			if a.socket != b.socket {
				l.distance[i][j] += otherSocket
			}
		}
		l.radii = append(l.radii, l.distance[i]...)
	}
	slices.Sort(l.radii)
	l.radii = slices.Compact(l.radii)
}
