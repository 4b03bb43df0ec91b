// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// smt returns a machine with a core for each number of online threads.
func smt(threads int, online ...int) topologytest.Spec {
	s := topologytest.Spec{PageSize: 64 * ki, Present: true, Nodes: []topologytest.Node{{Memory: 32 * gi}}}
	for core, n := range online {
		for i := range threads {
			s.CPUs = append(s.CPUs, topologytest.CPU{
				ID: core*threads + i, Core: core, CoreID: core * threads, Cluster: topologytest.NoCluster, Offline: i >= n,
			})
		}
	}
	return s
}

func smt4(online ...int) topologytest.Spec { return smt(4, online...) }

// I2: published steps can be placed on whole cores after any claims and
// releases, with any threads offline.
func TestWholeCoresCanBeHad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		threads := rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "threads")
		m := smt(threads, rapid.SliceOfN(rapid.IntRange(1, threads), 1, 12).Draw(t, "online")...).Machine()
		cfg := config()
		cfg.WholeCores = true
		divided, err := zones.Divide(m, cfg)
		require.NoError(t, err)
		layout := placement.NewLayout(m)
		for _, z := range divided.Zones {
			free, left := z.CPUs, z.CPUCapacity
			var held []contract.CPUSet
			for range 12 {
				if len(held) > 0 && rapid.Bool().Draw(t, "release") {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
					free, left = free.Union(held[i]), left+held[i].Size()
					held = slices.Delete(held, i, i+1)
				}
				if left < z.CPUStep {
					continue
				}
				n := z.CPUStep * rapid.IntRange(1, left/z.CPUStep).Draw(t, "steps")
				got, err := layout.Pick(free, n, placement.Options{WholeCores: true})
				require.NoError(t, err, "%d of %s", n, free)
				free, left, held = free.Difference(got), left-n, append(held, got)
			}
		}
	})
}

// A09, I7: a claim from before wholeCores holds half a core. Withheld capacity
// is counted in CPUs, not in steps; else the pool ends below its minimum.
func TestWithheldUnderAnOddClaim(t *testing.T) {
	odd := held("numa-0", contract.Decision{CPUs: contract.CPUs(0)}, nil)
	for minCPUs, want := range map[int][]int{2: {2, 4}, 3: {0, 4}, 4: {0, 2}, 5: {0, 2}, 6: {0, 0}} {
		cfg := config()
		cfg.WholeCores, cfg.SharedMinCPUs = true, minCPUs
		divided, err := zones.Divide(topologytest.T2().Machine(), cfg)
		require.NoError(t, err)
		zs := divided.Offer([]contract.ClaimRecord{odd})
		require.Equal(t, want, []int{zs[0].CPUCapacity, zs[1].CPUCapacity}, "minCPUs %d", minCPUs)
		require.GreaterOrEqual(t, divided.Pool.CPUs.Size()-max(1, want[0])-want[1], minCPUs, "what claims can hold")
	}
}

// A09, I7: with any claims from before a change of wholeCores, the shared pool
// keeps its minimum, unless no zone offers more than its claims hold.
func TestSharedPoolKeepsItsMinimumUnderClaims(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		cfg := config()
		cfg.WholeCores = true
		cfg.SharedMinCPUs = rapid.IntRange(1, len(m.CPUs)).Draw(t, "minCPUs")
		divided, err := zones.Divide(m, cfg)
		require.NoError(t, err)
		claimed := make(map[string]contract.CPUSet)
		for _, c := range m.CPUs {
			if rapid.IntRange(0, 3).Draw(t, "held") == 0 {
				zone := fmt.Sprintf("numa-%d", c.Node)
				claimed[zone] = claimed[zone].Union(contract.CPUs(c.ID))
			}
		}
		more := false
		lost := make(map[string]int)
		var claims []contract.ClaimRecord
		for zone, cpus := range claimed {
			claims = append(claims, held(zone, contract.Decision{CPUs: cpus}, nil))
			lost[zone] = cpus.Size()
		}
		for _, z := range divided.Offer(claims) {
			more = more || z.CPUCapacity > claimed[z.Name].Size()
			lost[z.Name] = max(lost[z.Name], z.CPUCapacity)
		}
		n := divided.Pool.CPUs.Size()
		for _, cpus := range lost {
			n -= cpus
		}
		if more {
			require.GreaterOrEqual(t, n, cfg.SharedMinCPUs)
		}
	})
}
