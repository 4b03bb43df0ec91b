// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestSpread(t *testing.T) {
	two6, broken := tree(1, 1, 2, 6, 1), tree(1, 1, 3, 2, 2)
	b := &builder{}
	b.addL3(0, 0, standard, 1, 2)
	b.addL3(0, 0, standard, 2, 2)
	sizes := b.machine(flat)
	b = &builder{}
	b.addL3(0, 0, standard, 4, 6)
	b.addL3(0, 0, standard, 4)
	b.addL3(0, 0, standard, 1)
	b.addL3(0, 0, standard, 1)
	uneven := b.machine(flat)
	kinds := &builder{}
	kinds.addL3(0, 0, efficiency, 1, 1)
	kinds.addL3(0, 0, efficiency, 1)
	kinds.addL3(0, 0, performance, 1, 1, 1, 1)
	hybrid := kinds.machine(flat)
	kinds = &builder{}
	kinds.addL3(0, 0, efficiency, 1, 1)
	kinds.addL3(0, 0, performance, 1, 1)
	equal := kinds.machine(flat)
	for _, c := range []struct {
		name    string
		machine topology.Machine
		free    string
		n       int
		whole   bool
		want    string
	}{
		{"A73 L3s in turn where the first cores of one are taken", two6, "2-11", 3, false, "2,6-7"},
		{"A73 L3s in turn where the first cores of both are taken", two6, "3-5,8-11", 4, false, "3-4,8-9"},
		{"an L3 with nothing but a shared core before a second core of another", broken, "0,4-7", 2, false, "0,4"},
		{"an unshared core first where the L3s are more than the CPUs", broken, "0,4-7", 1, false, "4"},
		{"cores that are shared before second threads", broken, "0,2,4-7", 4, false, "0,2,4,6"},
		{"a shared core before a second thread", broken, "4-5,7", 2, false, "4,7"},
		{"second threads in turn", broken, "0-1,4-5", 3, false, "0-1,4"},
		{"whole cores of two sizes over two L3s", sizes, "0-6", 3, true, "0,3-4"},
		{"whole cores of two sizes, one L3 only", sizes, "0-2", 3, true, "0-2"},
		{"whole cores: more L3s before equal numbers of CPUs", uneven, "0-15", 8, true, "4-9,14-15"},
		{"whole cores: equal numbers of CPUs", tree(1, 1, 2, 4, 2), "0-15", 8, true, "0-3,8-11"},
		{"the kind with more L3s", hybrid, "0-6", 2, false, "0,2"},
		{"the first of two equal kinds", equal, "0-3", 1, false, "0"},
		{"an unshared core first where the first core of the L3 is shared", tree(1, 1, 1, 2, 2), "1-3", 1, false, "2"},
		{"whole cores of the kind with more cores where more L3s are of no use", hybrid, "0-6", 1, true, "3"},
		{"the kind with more cores where more L3s are of no use", hybrid, "0-6", 1, false, "3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := placement.NewLayout(c.machine).Pick(parse(t, c.free), c.n,
				placement.Options{Placement: placement.Spread, WholeCores: c.whole})
			require.NoError(t, err)
			require.Equal(t, c.want, got.String())
		})
	}
}

func performance() topology.CPUType { return topology.CPUPerformance }
func efficiency() topology.CPUType  { return topology.CPUEfficiency }

// widest tries all picks and returns the most L3s for each number of CPUs; with
// one kind of cores if a kind has the number.
func (s small) widest(free uint32, o placement.Options) map[int]int {
	pure, mixed := make(map[int]int), make(map[int]int)
	eligible := s.eligible(free, o)
	for take := eligible; take != 0; take = (take - 1) & eligible {
		if !s.allowed(take, o) {
			continue
		}
		l3s, n := 0, bits.OnesCount32(take)
		for _, l3 := range s.l3s {
			if l3&take != 0 {
				l3s++
			}
		}
		mixed[n] = max(mixed[n], l3s)
		for _, k := range s.kind {
			if take&^k == 0 {
				pure[n] = max(pure[n], l3s)
			}
		}
	}
	for n, l3s := range pure {
		mixed[n] = l3s
	}
	return mixed
}

// A73: spread uses as many L3s as possible with any CPUs taken, also with whole
// cores of several sizes and on machines with two kinds of cores.
func TestSpreadUsesTheMostL3s(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSmall(t)
		s, l, set := newSmall(m), placement.NewLayout(m), drawFree(t, m)
		free := s.mask(set)
		o := placement.Options{Placement: placement.Spread, WholeCores: rapid.Bool().Draw(t, "wholeCores")}
		widest := s.widest(free, o)
		for n := 1; n <= set.Size(); n++ {
			got, err := l.Pick(set, n, o)
			want, can := widest[n]
			require.Equal(t, can, err == nil, "%d of %s: %v", n, set, err)
			if can {
				require.Equal(t, want, count(l3s(m), got), "L3s of %s, %d of %s", got, n, set)
			}
		}
	})
}

func count(groups []contract.CPUSet, got contract.CPUSet) int {
	used := 0
	for _, g := range groups {
		if !g.Intersection(got).IsEmpty() {
			used++
		}
	}
	return used
}

// A73 on real machines with any CPUs taken: as many L3s as possible; no second
// thread of a core while a core is free; free cores of the L3s in turn.
func TestSpreadOnRealMachines(t *testing.T) {
	type machine struct {
		topology.Machine
		layout *placement.Layout
	}
	var machines []machine
	for _, c := range topologytest.Library() {
		m := c.Spec.Machine()
		if m.CPUs[0].Type == topology.CPUStandard {
			machines = append(machines, machine{m, placement.NewLayout(m)})
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := machines[rapid.IntRange(0, len(machines)-1).Draw(t, "machine")]
		free := drawFree(t, m.Machine)
		if free.IsEmpty() {
			return
		}
		n := rapid.IntRange(1, free.Size()).Draw(t, "n")
		got, err := m.layout.Pick(free, n, placement.Options{Placement: placement.Spread})
		require.NoError(t, err)
		caches := l3s(m.Machine)
		require.Equal(t, min(n, count(caches, free)), count(caches, got))

		second := false
		taken, left := make([]int, len(caches)), make([]int, len(caches)) // free cores of each L3
		at := make(map[int]int, len(m.CPUs))
		for i, l3 := range caches {
			for _, id := range l3.List() {
				at[id] = i
			}
		}
		for _, c := range cores(m.Machine) {
			second = second || c.Intersection(got).Size() > 1
			switch l3 := at[c.List()[0]]; {
			case !c.IsSubsetOf(free):
			case c.Intersection(got).IsEmpty():
				left[l3]++
			default:
				taken[l3]++
			}
		}
		for a := range caches {
			require.False(t, second && left[a] > 0, "a second thread while %d cores are free", left[a])
			for b := range caches {
				require.False(t, left[a] > 0 && taken[b] > taken[a]+1,
					"%d cores of one L3, %d of another with %d free", taken[b], taken[a], left[a])
			}
		}
	})
}
