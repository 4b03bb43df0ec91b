// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// small is a machine of up to 16 CPUs with groups as masks: bit i is CPUs[i].
type small struct {
	machine                           topology.Machine
	sockets, places, l3s, cores, kind []uint32
	distance                          [][]int
}

func newSmall(m topology.Machine) small {
	s := small{machine: m}
	group := func(same func(a, b topology.CPU) bool) []uint32 {
		var out []uint32
		var seen uint32
		for i, a := range m.CPUs {
			if seen>>i&1 == 1 {
				continue
			}
			var mask uint32
			for j, b := range m.CPUs {
				if same(a, b) {
					mask |= 1 << j
				}
			}
			out, seen = append(out, mask), seen|mask
		}
		return out
	}
	s.sockets = group(func(a, b topology.CPU) bool { return a.Socket == b.Socket })
	s.places = group(func(a, b topology.CPU) bool { return a.Socket == b.Socket && a.Node == b.Node })
	s.l3s = group(func(a, b topology.CPU) bool { return a.L3 == b.L3 })
	s.cores = group(func(a, b topology.CPU) bool { return a.Core == b.Core })
	s.kind = group(func(a, b topology.CPU) bool { return a.Type == b.Type })
	node := func(id int) int {
		return slices.IndexFunc(m.NUMANodes, func(n topology.NUMANode) bool { return n.ID == id })
	}
	for _, a := range s.places {
		var row []int
		for _, b := range s.places {
			a, b := m.CPUs[bits.TrailingZeros32(a)], m.CPUs[bits.TrailingZeros32(b)]
			d := 0
			if a.Node != b.Node || a.Socket != b.Socket {
				d = m.NUMANodes[node(a.Node)].Distances[node(b.Node)]
			}
			if a.Socket != b.Socket {
				d += 1 << 20
			}
			row = append(row, d)
		}
		s.distance = append(s.distance, row)
	}
	return s
}

// want is the cost of a pick: the numbers that packed placement keeps low, the
// most important first. It is written from docs/concepts/placement.md, not from the
// code.
type want [13]int

func (s small) want(free, take uint32, o placement.Options) want {
	var w want
	count := func(x uint32) int { return bits.OnesCount32(x) }
	spanned := func(groups []uint32) int {
		n := 0
		for _, g := range groups {
			if g&take != 0 {
				n++
			}
		}
		return n
	}
	loss := func(groups []uint32) int {
		sum := 0
		for _, g := range groups {
			before, after := count(g&free), count(g&free&^take)
			sum += before*before - after*after
		}
		return sum
	}
	eligible := s.eligible(free, o)
	if spanned(s.kind) > 1 {
		w[0] = 1 // kinds of cores mixed
	} else {
		for _, k := range s.kind {
			if k&take != 0 {
				eligible = s.eligible(free&k, o)
			}
		}
		w[9] = loss(s.kind)
	}
	w[1] = 1 << 30 // distance of the NUMA nodes from a node that has CPUs to give
	for a, from := range s.places {
		if from&eligible == 0 {
			continue
		}
		radius := 0
		for b, to := range s.places {
			if to&take != 0 {
				radius = max(radius, s.distance[a][b])
			}
		}
		w[1] = min(w[1], radius)
	}
	w[2] = spanned(s.sockets)
	w[3] = spanned(s.places)
	for _, c := range s.cores {
		if c&take != 0 && c&take != c {
			w[4]++ // cores of which the claim gets only some threads
			if c&free == c {
				w[8]++ // whole cores broken
			}
		}
	}
	w[5] = spanned(s.l3s)
	for _, c := range s.l3s {
		if c&take != 0 && c&free == c {
			w[6]++ // whole L3s broken or used up
		}
		if c&take != 0 && c&take != c {
			w[7]++ // L3s of which the claim gets only some CPUs
		}
	}
	w[10], w[11], w[12] = loss(s.places), loss(s.l3s), loss(s.cores)
	return w
}

// eligible returns the free CPUs that may be taken with the options.
func (s small) eligible(free uint32, o placement.Options) uint32 {
	for _, k := range s.kind {
		kind := string(s.machine.CPUs[bits.TrailingZeros32(k)].Type)
		if o.Cores != "" && o.Cores != placement.CoresAny && kind != o.Cores {
			free &^= k
		}
	}
	units := []uint32(nil)
	switch {
	case o.WholeL3:
		units = s.l3s
	case o.WholeCores:
		units = s.cores
	}
	for _, u := range units {
		if u&free != u {
			free &^= u
		}
	}
	return free
}

// allowed reports whether the pick has whole units where they are wanted.
func (s small) allowed(take uint32, o placement.Options) bool {
	broken := func(u uint32) bool { return u&take != 0 && u&take != u }
	return !(o.WholeL3 && slices.ContainsFunc(s.l3s, broken) || o.WholeCores && slices.ContainsFunc(s.cores, broken))
}

// optimum tries all picks and returns the least cost for each possible number
// of CPUs.
func (s small) optimum(free uint32, o placement.Options) map[int]want {
	best := make(map[int]want)
	eligible := s.eligible(free, o)
	for take := eligible; take != 0; take = (take - 1) & eligible {
		if !s.allowed(take, o) {
			continue
		}
		w, n := s.want(free, take, o), bits.OnesCount32(take)
		if b, found := best[n]; !found || slices.Compare(w[:], b[:]) < 0 {
			best[n] = w
		}
	}
	return best
}

func (s small) set(mask uint32) contract.CPUSet {
	var ids []int
	for i, c := range s.machine.CPUs {
		if mask>>i&1 == 1 {
			ids = append(ids, c.ID)
		}
	}
	return contract.CPUs(ids...)
}

func (s small) mask(set contract.CPUSet) uint32 {
	var mask uint32
	for i, c := range s.machine.CPUs {
		if set.Contains(c.ID) {
			mask |= 1 << i
		}
	}
	return mask
}

func (s small) requireOptimal(t require.TestingT, l *placement.Layout, free uint32, o placement.Options) {
	best := s.optimum(free, o)
	for n := 1; n <= bits.OnesCount32(free); n++ {
		got, err := l.Pick(s.set(free), n, o)
		w, can := best[n]
		require.Equal(t, can, err == nil, "%d of %s, %+v: %v", n, s.set(free), o, err)
		if can {
			take := s.mask(got)
			require.Equal(t, n, bits.OnesCount32(take))
			require.Equal(t, w, s.want(free, take, o), "%d of %s, %+v: %s", n, s.set(free), o, got)
		}
	}
}

var wishes = []placement.Options{{}, {WholeCores: true}, {WholeL3: true}}

// Every number of CPUs from every set of free CPUs of the small machines.
func TestOptimalEverywhere(t *testing.T) {
	smt4 := tree(1, 1, 2, 1, 4)
	cores3 := tree(1, 1, 1, 3, 3)
	nodes := tree(1, 2, 2, 1, 2)
	for name, m := range map[string]topology.Machine{
		"T1": topologytest.T1().Machine(), "T2": topologytest.T2().Machine(), "T3": topologytest.T3().Machine(),
		"T7": topologytest.T7().Machine(), "4 threads": smt4, "3 threads": cores3, "2 nodes": nodes,
	} {
		t.Run(name, func(t *testing.T) {
			s, l := newSmall(m), placement.NewLayout(m)
			for free := uint32(0); free < 1<<len(m.CPUs); free++ {
				for _, o := range wishes {
					s.requireOptimal(t, l, free, o)
				}
			}
		})
	}
}

// Any machine of up to 16 CPUs, with cores and caches of several sizes, several
// kinds of cores and any distances.
func TestOptimalAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSmall(t)
		s, l := newSmall(m), placement.NewLayout(m)
		share := rapid.IntRange(1, 10).Draw(t, "share")
		var free uint32
		for i := range m.CPUs {
			if rapid.IntRange(1, 10).Draw(t, "free") <= share {
				free |= 1 << i
			}
		}
		o := rapid.SampledFrom(wishes).Draw(t, "options")
		if m.CPUs[0].Type != topology.CPUStandard {
			o.Cores = rapid.SampledFrom([]string{"", "", placement.CoresAny, string(m.CPUs[0].Type)}).Draw(t, "cores")
		}
		s.requireOptimal(t, l, free, o)
	})
}
