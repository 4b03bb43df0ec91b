// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// level is how near CPUs are to each other. A place is the part of a NUMA node
// on one socket, which is the whole node on most machines.
type level int

const (
	levelL3 level = iota
	levelPlace
	levelSocket
	levelMachine
	levels
)

// span is a group of CPUs: L3s lo to hi-1, as the layout orders them.
type span struct{ lo, hi int }

// core is a core with its CPUs in order.
type core struct {
	cpus []int
	l3   int
	kind topology.CPUType
}

// Layout is the machine in the order in which CPUs are near to each other.
// It is made once and never changes.
type Layout struct {
	cores []core
	// coreOf is the index of a CPU's core.
	coreOf map[int]int
	// coresOf is the range of cores of an L3.
	coresOf []span
	// groups are the spans of each level; groupOf the group of an L3.
	groups  [levels][]span
	groupOf [levels][]int
	// distance is between places.
	distance [][]int
	// threads is the size of the largest core.
	threads int
	// kinds are the kinds of cores that the machine has.
	kinds map[topology.CPUType]bool
}

// NewLayout orders the machine. The order of m.CPUs does not matter.
func NewLayout(m topology.Machine) *Layout {
	cpus := slices.SortedFunc(slices.Values(m.CPUs), func(a, b topology.CPU) int {
		return cmp.Or(cmp.Compare(a.Socket, b.Socket), cmp.Compare(a.Node, b.Node), cmp.Compare(a.L3, b.L3),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	l := &Layout{coreOf: make(map[int]int, len(cpus)), kinds: make(map[topology.CPUType]bool)}
	var places []topology.CPU
	for i, c := range cpus {
		var prev topology.CPU
		if i > 0 {
			prev = cpus[i-1]
		}
		newSocket := i == 0 || prev.Socket != c.Socket
		newPlace := newSocket || prev.Node != c.Node
		newL3 := newPlace || prev.L3 != c.L3
		if newPlace {
			places = append(places, c)
		}
		if newL3 {
			l.addL3([levels]bool{levelL3: true, levelPlace: newPlace, levelSocket: newSocket, levelMachine: i == 0})
		}
		l.addCPU(c, newL3 || prev.Core != c.Core)
	}
	l.distance = distances(m, places)
	return l
}

// addL3 opens an L3 and those larger groups that begin with it.
func (l *Layout) addL3(opens [levels]bool) {
	n := len(l.coresOf)
	l.coresOf = append(l.coresOf, span{len(l.cores), len(l.cores)})
	for lv := range levels {
		if opens[lv] {
			l.groups[lv] = append(l.groups[lv], span{n, n})
		}
		last := len(l.groups[lv]) - 1
		l.groups[lv][last].hi = n + 1
		l.groupOf[lv] = append(l.groupOf[lv], last)
	}
}

func (l *Layout) addCPU(c topology.CPU, newCore bool) {
	l3 := len(l.coresOf) - 1
	if newCore {
		l.cores = append(l.cores, core{l3: l3, kind: c.Type})
		l.kinds[c.Type] = true
		l.coresOf[l3].hi = len(l.cores)
	}
	last := len(l.cores) - 1
	l.cores[last].cpus = append(l.cores[last].cpus, c.ID)
	l.coreOf[c.ID] = last
	l.threads = max(l.threads, len(l.cores[last].cpus))
}

// otherSocket outweighs every distance between NUMA nodes.
const otherSocket = 1 << 16

func distances(m topology.Machine, places []topology.CPU) [][]int {
	index := make(map[int]int, len(m.NUMANodes))
	for i, n := range m.NUMANodes {
		index[n.ID] = i
	}
	out := make([][]int, len(places))
	for i, a := range places {
		out[i] = make([]int, len(places))
		for j, b := range places {
			out[i][j] = m.NUMANodes[index[a.Node]].Distances[index[b.Node]]
			if a.Socket != b.Socket {
				out[i][j] += otherSocket
			}
		}
	}
	return out
}
