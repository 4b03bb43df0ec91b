// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// groupsOf returns the machine's cores or L3s.
func groupsOf(m topology.Machine, id func(topology.CPU) int) []contract.CPUSet {
	members := make(map[int][]int)
	var order []int
	for _, c := range m.CPUs {
		if members[id(c)] == nil {
			order = append(order, id(c))
		}
		members[id(c)] = append(members[id(c)], c.ID)
	}
	var out []contract.CPUSet
	for _, g := range order {
		out = append(out, contract.CPUs(members[g]...))
	}
	return out
}

func cores(m topology.Machine) []contract.CPUSet {
	return groupsOf(m, func(c topology.CPU) int { return c.Core })
}

func l3s(m topology.Machine) []contract.CPUSet {
	return groupsOf(m, func(c topology.CPU) int { return c.L3 })
}

func drawFree(t *rapid.T, m topology.Machine) contract.CPUSet {
	share := rapid.IntRange(1, 10).Draw(t, "share")
	var ids []int
	for _, c := range m.CPUs {
		if rapid.IntRange(1, 10).Draw(t, "free") <= share {
			ids = append(ids, c.ID)
		}
	}
	return contract.CPUs(ids...)
}

func drawOptions(t *rapid.T) placement.Options {
	return placement.Options{
		Placement:  rapid.SampledFrom([]string{"", placement.Packed, placement.Spread}).Draw(t, "placement"),
		WholeCores: rapid.Bool().Draw(t, "wholeCores"),
		WholeL3:    rapid.IntRange(0, 3).Draw(t, "wholeL3") == 0,
	}
}

// A pick has exactly n of the free CPUs, whole units where wanted, and is the
// same every time and for every order of the machine's CPUs (I8).
func TestPickLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		free := drawFree(t, m)
		n := rapid.IntRange(0, free.Size()+1).Draw(t, "n")
		o := drawOptions(t)
		got, err := placement.NewLayout(m).Pick(free, n, o)
		if !o.WholeCores && !o.WholeL3 {
			require.Equal(t, n <= free.Size(), err == nil, "I2: what is free can be had")
		}
		shuffled := m
		shuffled.CPUs = rapid.Permutation(m.CPUs).Draw(t, "order")
		again, errAgain := placement.NewLayout(shuffled).Pick(free, n, o)
		require.Equal(t, err == nil, errAgain == nil)
		require.Equal(t, got.String(), again.String())
		if err != nil {
			return
		}
		require.Equal(t, n, got.Size())
		require.True(t, got.IsSubsetOf(free))
		if o.WholeCores {
			requireWhole(t, cores(m), got)
		}
		if o.WholeL3 {
			requireWhole(t, l3s(m), got)
		}
	})
}

// A pick uses the memory of earlier picks of the layout, and its answer does not depend on them (I8).
func TestPickAfterOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		used := placement.NewLayout(m)
		for range rapid.IntRange(2, 6).Draw(t, "picks") {
			free := drawFree(t, m)
			n, o := rapid.IntRange(0, free.Size()+1).Draw(t, "n"), drawOptions(t)
			want, wantErr := placement.NewLayout(m).Pick(free, n, o)
			got, err := used.Pick(free, n, o)
			require.Equal(t, wantErr, err)
			require.Equal(t, want.String(), got.String())
		}
	})
}

// Picks at the same time have memory of their own.
func TestPicksAtTheSameTime(t *testing.T) {
	m := topologytest.T4().Machine()
	l := placement.NewLayout(m)
	var picks sync.WaitGroup
	for n := 1; n <= m.Online().Size(); n += 37 {
		want, err := placement.NewLayout(m).Pick(m.Online(), n, placement.Options{})
		require.NoError(t, err)
		picks.Go(func() {
			for range 20 {
				got, err := l.Pick(m.Online(), n, placement.Options{})
				assert.NoError(t, err)
				assert.Equal(t, want.String(), got.String())
			}
		})
	}
	picks.Wait()
}

// The first pick of half of a large machine allocates hundreds of KiB. After a few picks, no pick allocates much more than its answer.
func TestPickUsesMemoryAgain(t *testing.T) {
	m := topologytest.T4().Machine()
	free := m.Online()
	for name, o := range map[string]placement.Options{
		"packed": {}, "spread": {Placement: placement.Spread}, "whole cores": {WholeCores: true}, "whole L3s": {WholeL3: true},
		"spread, whole cores": {Placement: placement.Spread, WholeCores: true},
	} {
		for _, n := range []int{16, len(m.CPUs) / 2} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				l, most := placement.NewLayout(m), uint64(0)
				for i := range 200 {
					before := allocated()
					_, err := l.Pick(free, n, o)
					require.NoError(t, err)
					if i >= 20 {
						most = max(most, allocated()-before)
					}
				}
				require.Less(t, most, uint64(32<<10), "bytes")
			})
		}
	}
}

// The tables of an L3 that does not win make room for the tables of the next L3.
func TestPickOfOneL3(t *testing.T) {
	m := tree(8, 8, 4, 8, 2)
	l, free := placement.NewLayout(m), m.Online()
	before := allocated()
	_, err := l.Pick(free, 16, placement.Options{})
	require.NoError(t, err)
	t.Log(allocated() - before)
	require.Less(t, allocated()-before, uint64(256<<10), "bytes")
}

// allocated returns how many bytes the process has allocated since its start.
func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

func requireWhole(t require.TestingT, groups []contract.CPUSet, got contract.CPUSet) {
	for _, g := range groups {
		if common := g.Intersection(got); !common.IsEmpty() {
			require.Equal(t, g.String(), common.String())
		}
	}
}

// A12: where cores are of one size, a number that fits a free L3 gets one L3,
// whatever else is free. (With several sizes, cores of two L3s may add up to
// the number while one L3 would need a broken core.)
func TestPackedFitsOneL3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		caches, all := l3s(m), cores(m)
		if slices.ContainsFunc(all, func(c contract.CPUSet) bool { return c.Size() != all[0].Size() }) {
			return
		}
		l3 := rapid.SampledFrom(caches).Draw(t, "l3")
		free := drawFree(t, m).Union(l3)
		n := rapid.IntRange(1, l3.Size()).Draw(t, "n")
		got, err := placement.NewLayout(m).Pick(free, n, placement.Options{})
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(caches, got.IsSubsetOf), "%s of %s", got, free)
	})
}

// In the zone of a NUMA node with cores of two threads: while whole cores
// suffice, an even number of CPUs breaks and shares no core, an odd number has
// one thread more.
func TestPackedTakesWholeCores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := topologytest.Random(t)
		for i := range s.CPUs {
			s.CPUs[i].Offline = false
		}
		m := s.Machine()
		pairs := cores(m)
		if slices.ContainsFunc(pairs, func(c contract.CPUSet) bool { return c.Size() != 2 }) {
			return
		}
		zone := m.CPUs[0].Node
		free := drawFree(t, m).Intersection(m.NUMANodes[slices.IndexFunc(m.NUMANodes, func(n topology.NUMANode) bool {
			return n.ID == zone
		})].CPUs)
		whole := 0
		for _, c := range pairs {
			if c.IsSubsetOf(free) {
				whole += 2
			}
		}
		if whole == 0 {
			return
		}
		n := rapid.IntRange(1, whole).Draw(t, "n")
		got, err := placement.NewLayout(m).Pick(free, n, placement.Options{})
		require.NoError(t, err)
		halves := 0
		for _, c := range pairs {
			if c.Intersection(got).Size() == 1 {
				halves++
			}
		}
		require.Equal(t, n%2, halves, "%s of %s", got, free)
	})
}

// A12 on T4, after churn: up to 16 CPUs get one L3 while an L3 is free.
func TestChurn(t *testing.T) {
	m := topologytest.T4().Machine()
	l, caches := placement.NewLayout(m), l3s(m)
	rapid.Check(t, func(t *rapid.T) {
		free := m.Online()
		var held []contract.CPUSet
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(t, "release") == 0 {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "claim")
				free = free.Union(held[i])
				held = slices.Delete(held, i, i+1)
				continue
			}
			n := rapid.SampledFrom([]int{1, 2, 3, 4, 7, 16, 16, 40, 70}).Draw(t, "n")
			if n > free.Size() {
				continue
			}
			whole := slices.ContainsFunc(caches, func(c contract.CPUSet) bool { return c.IsSubsetOf(free) })
			got, err := l.Pick(free, n, placement.Options{})
			require.NoError(t, err)
			if n <= 16 && whole {
				require.True(t, slices.ContainsFunc(caches, got.IsSubsetOf))
			}
			require.True(t, got.IsSubsetOf(free), "I1")
			free = free.Difference(got)
			held = append(held, got)
		}
		for _, h := range held {
			free = free.Union(h)
		}
		require.True(t, free == m.Online(), "I3")
	})
}

// I2 with wholeCores at driver level: any sequence of claims and releases in
// steps, up to the capacity, is placed on whole cores.
func TestWholeCoresNeverStuck(t *testing.T) {
	m := topologytest.T5().Machine()
	l := placement.NewLayout(m)
	rapid.Check(t, func(t *rapid.T) {
		free := m.Online()
		var held []contract.CPUSet
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "claim")
				free = free.Union(held[i])
				held = slices.Delete(held, i, i+1)
				continue
			}
			if free.IsEmpty() {
				continue
			}
			n := 2 * rapid.IntRange(1, free.Size()/2).Draw(t, "n")
			got, err := l.Pick(free, n, placement.Options{
				WholeCores: true,
				Placement:  rapid.SampledFrom([]string{placement.Packed, placement.Spread}).Draw(t, "placement"),
			})
			require.NoError(t, err)
			free = free.Difference(got)
			held = append(held, got)
		}
	})
}
