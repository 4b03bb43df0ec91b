// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

const (
	ki = topologytest.Ki
	mi = topologytest.Mi
	gi = topologytest.Gi
)

func config() zones.Config {
	return zones.Config{GroupBy: zones.NUMANode, SharedMode: zones.PoolDynamic, SharedMinCPUs: 1}
}

// known are the kinds of memory offered by default.
var known = []topology.MemoryType{topology.MemoryDRAM, topology.MemoryHBM, topology.MemoryCXL}

// expander returns T6 with a CXL expander.
func expander() topologytest.Spec {
	s := topologytest.T6()
	s.Nodes[2].DAX = topologytest.CXL
	return s
}

func compute(t *testing.T, s topologytest.Spec, c zones.Config) []zones.Zone {
	t.Helper()
	divided, err := zones.Divide(s.Machine(), c)
	require.NoError(t, err)
	zs, pool := divided.Zones, divided.Pool
	require.Equal(t, s.Machine().Online(), pool.CPUs.Union(pool.UnmanagedCPUs))
	return zs
}

// brief is what the tables compare.
type brief struct {
	Name     string
	CPUs     string
	Capacity int
	Mems     string
	Memory   int64
}

func briefs(zs []zones.Zone) []brief {
	var out []brief
	for _, z := range zs {
		out = append(out, brief{z.Name, z.CPUs.String(), z.CPUCapacity, z.Mems.String(), z.Memory})
	}
	return out
}

func TestCompute(t *testing.T) {
	const m2 = 16*gi - 512*2*mi - 2*gi // memory of a node of T2
	for _, c := range []struct {
		name   string
		spec   topologytest.Spec
		change func(*zones.Config)
		want   []brief
	}{
		{
			name:   "A01 T2: the shared pool's CPU is withheld from the first zone",
			spec:   topologytest.T2(),
			change: func(*zones.Config) {},
			want:   []brief{{"numa-0", "0-1,4-5", 3, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "A02 T2: a reserved CPU is the shared pool's",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.ReservedCPUs = contract.CPUs(0) },
			want:   []brief{{"numa-0", "1,4-5", 3, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "A02 T2: a node reserved keeps its memory",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.ReservedCPUs = contract.CPUs(0, 1, 4, 5) },
			want:   []brief{{"numa-0", "", 0, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "A09 minCPUs beyond the first zone",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.SharedMinCPUs = 6; c.ReservedCPUs = contract.CPUs(7) },
			want:   []brief{{"numa-0", "0-1,4-5", 0, "0", m2}, {"numa-1", "2-3,6", 2, "1", m2}},
		},
		{
			name:   "A58 managed CPUs only: the shared pool is one of them",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.ManagedCPUs = contract.CPUs(2, 3, 6, 7) },
			want:   []brief{{"numa-0", "", 0, "0", m2}, {"numa-1", "2-3,6-7", 3, "1", m2}},
		},
		{
			name:   "A58 managed CPUs, one reserved",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.ManagedCPUs = contract.CPUs(2, 3, 6, 7); c.ReservedCPUs = contract.CPUs(2) },
			want:   []brief{{"numa-0", "", 0, "0", m2}, {"numa-1", "3,6-7", 3, "1", m2}},
		},
		{
			name:   "whole cores: a reserved sibling takes its core out",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.WholeCores = true; c.ReservedCPUs = contract.CPUs(0) },
			want:   []brief{{"numa-0", "1,5", 2, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "whole cores: a core is withheld",
			spec:   topologytest.T2(),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-1,4-5", 2, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "A03 T6",
			spec:   topologytest.T6(),
			change: func(c *zones.Config) { c.ReservedCPUs = contract.CPUs(0) },
			want: []brief{
				{"numa-0", "1,4-5", 3, "0", m2},
				{"numa-1", "2-3,6-7", 4, "1", m2},
				{"numa-2", "", 0, "2", 64 * gi},
			},
		},
		{
			name:   "T6 by socket: the memory-only node stays a zone",
			spec:   topologytest.T6(),
			change: func(c *zones.Config) { c.GroupBy = zones.Socket },
			want: []brief{
				{"socket-0", "0-1,4-5", 3, "0", m2},
				{"socket-1", "2-3,6-7", 4, "1", m2},
				{"numa-2", "", 0, "2", 64 * gi},
			},
		},
		{
			name:   "T6 as machine: likewise",
			spec:   topologytest.T6(),
			change: func(c *zones.Config) { c.GroupBy = zones.Machine },
			want:   []brief{{"machine", "0-7", 7, "0-1", 2 * m2}, {"numa-2", "", 0, "2", 64 * gi}},
		},
		{
			name:   "A75 T6: memory of unknown kind is not offered",
			spec:   topologytest.T6(),
			change: func(c *zones.Config) { c.MemoryTypes = known },
			want:   []brief{{"numa-0", "0-1,4-5", 3, "0", m2}, {"numa-1", "2-3,6-7", 4, "1", m2}},
		},
		{
			name:   "A75 T6 with an expander",
			spec:   expander(),
			change: func(c *zones.Config) { c.MemoryTypes = known },
			want: []brief{
				{"numa-0", "0-1,4-5", 3, "0", m2},
				{"numa-1", "2-3,6-7", 4, "1", m2},
				{"numa-2", "", 0, "2", 64 * gi},
			},
		},
		{
			name:   "A75 T6 with an expander: its memory only",
			spec:   expander(),
			change: func(c *zones.Config) { c.MemoryTypes = []topology.MemoryType{topology.MemoryCXL} },
			want:   []brief{{"numa-0", "0-1,4-5", 3, "", 0}, {"numa-1", "2-3,6-7", 4, "", 0}, {"numa-2", "", 0, "2", 64 * gi}},
		},
		{
			name:   "A04 T7: memory is whole steps, hugepages out",
			spec:   topologytest.T7(),
			change: func(c *zones.Config) { c.ReservedMemory = map[int]int64{0: gi + 1} },
			want:   []brief{{"numa-0", "0-3", 3, "0", 45*gi - 32*mi}, {"numa-1", "4-7", 4, "1", 46*gi - 32*mi}},
		},
		{
			name:   "A04 T8: the kernel's ids",
			spec:   topologytest.T8(),
			change: func(c *zones.Config) { c.GroupBy = zones.Socket },
			want:   []brief{{"socket-0", "0-2,4-10", 9, "0", 32 * gi}, {"socket-8", "80-82,84-90", 10, "8", 32 * gi}},
		},
		{
			name:   "T8 whole cores: more are of three than of four",
			spec:   topologytest.T8(),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-2,8-10", 6, "0", 32 * gi}, {"numa-8", "80-82,88-90", 6, "8", 32 * gi}},
		},
		{
			name:   "whole cores of four, some with threads offline: twos and ones add up",
			spec:   smt4(4, 4, 4, 2, 2, 2, 1, 1),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-13,16-17,20-21,24,28", 16, "0", 32 * gi}},
		},
		{
			name:   "whole cores of four, some with threads offline: threes do not",
			spec:   smt4(4, 4, 3, 2, 2),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-7,12-13,16-17", 12, "0", 32 * gi}},
		},
		{
			name:   "whole cores of four, one of them whole",
			spec:   smt4(3, 4, 3, 3, 3),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-2,8-10,12-14,16-18", 12, "0", 32 * gi}},
		},
		{
			name:   "whole cores of six and less: twos and threes do not go together",
			spec:   smt(8, 6, 6, 3, 2, 2),
			change: func(c *zones.Config) { c.WholeCores = true },
			want:   []brief{{"numa-0", "0-5,8-13,16-18", 12, "0", 32 * gi}},
		},
		{
			name:   "more reserved than there is",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ReservedMemory = map[int]int64{0: 100 * gi} },
			want:   []brief{{"numa-0", "0-3", 3, "0", 0}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			c.change(&cfg)
			require.Equal(t, c.want, briefs(compute(t, c.spec, cfg)))
		})
	}
}

// A58: the three parts of a node that is shared with another driver.
func TestPools(t *testing.T) {
	cfg := config()
	divided, err := zones.Divide(topologytest.T2().Machine(), cfg)
	require.NoError(t, err)
	require.Equal(t, "0-7", divided.Pool.CPUs.String())
	require.True(t, divided.Pool.UnmanagedCPUs.IsEmpty())

	cfg.ManagedCPUs = contract.CPUs(2, 3, 6, 7)
	divided, err = zones.Divide(topologytest.T2().Machine(), cfg)
	require.NoError(t, err)
	require.Equal(t, "2-3,6-7", divided.Pool.CPUs.String())
	require.Equal(t, "0-1,4-5", divided.Pool.UnmanagedCPUs.String())

	cfg.SharedMode = zones.PoolFixed
	divided, err = zones.Divide(topologytest.T2().Machine(), cfg)
	require.NoError(t, err)
	zs, pool := divided.Zones, divided.Pool
	require.Equal(t, "0-1,4-5", pool.CPUs.String())
	require.True(t, pool.UnmanagedCPUs.IsEmpty())
	require.Equal(t, 4, zs[1].CPUCapacity, "nothing of the managed CPUs is withheld")
}

func TestNothingToOffer(t *testing.T) {
	cfg := config()
	cfg.ReservedCPUs = contract.CPUs(0, 1, 2, 3)
	cfg.ReservedMemory = map[int]int64{0: 8 * gi}
	require.Empty(t, compute(t, topologytest.T1(), cfg))
}

func TestHugepages(t *testing.T) {
	cfg := config()
	cfg.ReservedHugepages = map[int]map[int64]int64{0: {2 * mi: 12, gi: 5}}
	zs := compute(t, topologytest.T2(), cfg)
	require.Equal(t, map[int64]int64{2 * mi: 500}, zs[0].Hugepages)
	require.Equal(t, map[int64]int64{2 * mi: 512, gi: 2}, zs[1].Hugepages)
	require.Equal(t, zs[1].Memory, zs[0].Memory, "reserved hugepages are no memory either")

	cfg = config()
	cfg.GroupBy = zones.Machine
	require.Equal(t, map[int64]int64{2 * mi: 1024, gi: 4}, compute(t, topologytest.T2(), cfg)[0].Hugepages)
}

func layout(t *testing.T, text string) cpulayout.Layout {
	l, err := cpulayout.Parse(text)
	require.NoError(t, err)
	return l
}

func TestHardware(t *testing.T) {
	hardware := func(s topologytest.Spec, by zones.Kind) zones.Hardware {
		cfg := config()
		cfg.GroupBy = by
		zs := compute(t, s, cfg)
		return zs[len(zs)-1].Hardware
	}
	distances := map[int]int{0: 40, 1: 40, 2: 40, 3: 40, 4: 40, 5: 32, 6: 21, 7: 10}
	require.Equal(t, zones.Hardware{
		SocketID: 3, NumCPUs: 64, NumCores: 32, L3Caches: 4, ThreadsPerCore: 2, MemoryType: "dram", CPUType: "standard",
		Distances: distances, NearestCPUNode: -1, NearestCPUDistance: -1, Layout: layout(t, "224-255,480-511 core=cpu%256 l3=core/8"),
		NUMANodes: contract.NUMANodes(7),
	}, hardware(topologytest.T4(), zones.NUMANode))
	require.Equal(t, zones.Hardware{
		SocketID: -1, NumCPUs: 512, NumCores: 256, L3Caches: 32, ThreadsPerCore: 2, MemoryType: "dram", CPUType: "standard",
		NearestCPUNode: -1, NearestCPUDistance: -1, Layout: layout(t, "0-511 core=cpu%256 l3=core/8"),
		NUMANodes: contract.NUMANodes(0, 1, 2, 3, 4, 5, 6, 7),
	}, hardware(topologytest.T4(), zones.Machine))
	require.Equal(t, zones.Hardware{
		SocketID: 0, NumCPUs: 32, NumCores: 24, L3Caches: 1, ThreadsPerCore: 2, MemoryType: "dram", CPUType: zones.CPUMixed,
		Distances: map[int]int{0: 10}, NearestCPUNode: -1, NearestCPUDistance: -1, NUMANodes: contract.NUMANodes(0),
	}, hardware(topologytest.T5(), zones.NUMANode))
	expander := expander()
	expander.Nodes[2].Performance = topology.MemoryPerformance{ReadBandwidth: 60000, ReadLatency: 250}
	require.Equal(t, zones.Hardware{
		SocketID: -1, MemoryType: "cxl", Performance: topology.MemoryPerformance{ReadBandwidth: 60000, ReadLatency: 250},
		Distances: map[int]int{0: 32, 1: 21, 2: 10}, NearestCPUNode: 1, NearestCPUDistance: 21,
		NUMANodes: contract.NUMANodes(2),
	}, hardware(expander, zones.NUMANode))
	for _, by := range []zones.Kind{zones.Socket, zones.Machine} {
		require.Equal(t, 1, hardware(expander, by).NearestCPUNode, "a memory-only node stays a NUMA zone")
		require.Equal(t, topology.MemoryCXL, hardware(expander, by).MemoryType)
	}
	cfg := config()
	cfg.MemoryTypes = []topology.MemoryType{topology.MemoryCXL}
	require.Empty(t, compute(t, expander, cfg)[0].MemoryType, "no memory is offered there")
	expander.Nodes[0].Performance = topology.MemoryPerformance{ReadBandwidth: 100000, ReadLatency: 100}
	cfg = config()
	cfg.GroupBy = zones.Machine
	require.Zero(t, compute(t, expander, cfg)[0].Performance, "of several nodes")
	require.NotZero(t, compute(t, expander, cfg)[1].Performance)
	require.True(t, hardware(topologytest.T5(), zones.NUMANode).SMTEnabled())
	require.False(t, hardware(topologytest.T7(), zones.NUMANode).SMTEnabled())
}

func TestErrors(t *testing.T) {
	oneNode := topologytest.T2()
	for i := range oneNode.CPUs {
		oneNode.CPUs[i].Node = 0
	}
	for _, c := range []struct {
		name   string
		spec   topologytest.Spec
		change func(*zones.Config)
		want   string
	}{
		{
			name:   "reserved CPUs",
			spec:   topologytest.T8(),
			change: func(c *zones.Config) { c.ReservedCPUs = contract.CPUs(0, 3, 99) },
			want:   "reservedCPUs 0,3,99: this machine has no CPUs 3,99",
		},
		{
			name:   "managed CPUs",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ManagedCPUs = contract.CPUs(4) },
			want:   "managedCPUs 4: this machine has no CPUs 4 (online are 0-3)",
		},
		{"no shared pool", topologytest.T1(), func(c *zones.Config) { c.SharedMinCPUs = 0 }, "sharedPool.minCPUs 0: want 1 to 4"},
		{
			name:   "shared pool larger than the machine",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.SharedMinCPUs = 5 },
			want:   "sharedPool.minCPUs 5: want 1 to 4",
		},
		{
			name:   "managed CPUs without room for the pool",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ManagedCPUs = contract.CPUs(1); c.SharedMinCPUs = 2 },
			want:   `minCPUs 2, but with mode dynamic and managedCPUs "1" the shared pool has 1 CPUs (1)`,
		},
		{
			name:   "fixed without managed CPUs",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.SharedMode = zones.PoolFixed },
			want:   `minCPUs 1, but with mode fixed and managedCPUs "" the shared pool has 0 CPUs`,
		},
		{"mode", topologytest.T1(), func(c *zones.Config) { c.SharedMode = "static" }, `sharedPool.mode "static"`},
		{"groupBy", topologytest.T1(), func(c *zones.Config) { c.GroupBy = "die" }, `groupBy "die"`},
		{"node over sockets", oneNode, func(c *zones.Config) { c.GroupBy = zones.Socket }, "NUMA node 0 spans sockets 0 and 1"},
		{
			name:   "memory of no node",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ReservedMemory = map[int]int64{1: 1} },
			want:   "reservedMemory: there is no NUMA node 1",
		},
		{"negative memory", topologytest.T1(), func(c *zones.Config) { c.ReservedMemory = map[int]int64{0: -1} }, "-1 bytes"},
		{
			name:   "hugepages of no node",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ReservedHugepages = map[int]map[int64]int64{7: nil} },
			want:   "reservedHugepages: there is no NUMA node 7",
		},
		{
			name:   "negative hugepages",
			spec:   topologytest.T1(),
			change: func(c *zones.Config) { c.ReservedHugepages = map[int]map[int64]int64{0: {2 * mi: -1}} },
			want:   "-1 pages",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config()
			c.change(&cfg)
			_, err := zones.Divide(c.spec.Machine(), cfg)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A09, I7: with any claims up to the published capacity, in any order, the
// shared pool keeps its minimum, and no zone publishes CPUs that it lacks.
func TestSharedPoolKeepsItsMinimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		draw := func(label string) contract.CPUSet {
			var ids []int
			for _, c := range m.CPUs {
				if rapid.IntRange(0, 3).Draw(t, label) == 0 {
					ids = append(ids, c.ID)
				}
			}
			return contract.CPUs(ids...)
		}
		cfg := zones.Config{
			SharedMode:    zones.PoolDynamic,
			GroupBy:       rapid.SampledFrom([]zones.Kind{zones.NUMANode, zones.Socket, zones.Machine}).Draw(t, "groupBy"),
			ReservedCPUs:  draw("reserved"),
			SharedMinCPUs: rapid.IntRange(1, len(m.CPUs)).Draw(t, "minCPUs"),
			WholeCores:    rapid.Bool().Draw(t, "wholeCores"),
		}
		candidates := m.Online()
		if managed := draw("managed CPUs"); !managed.IsEmpty() && rapid.Bool().Draw(t, "managed") {
			cfg.ManagedCPUs, candidates = managed, managed
			if rest := m.Online().Difference(managed); !rest.IsEmpty() && rapid.Bool().Draw(t, "fixed") {
				cfg.SharedMode, candidates = zones.PoolFixed, rest
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "leave out") == 0 {
			m.Isolated, m.Restricted = draw("isolated"), draw("restricted")
			candidates = candidates.Difference(m.Isolated).Difference(m.Restricted)
		}
		if candidates.IsEmpty() {
			return
		}
		cfg.SharedMinCPUs = min(cfg.SharedMinCPUs, candidates.Size())
		divided, err := zones.Divide(m, cfg)
		require.NoError(t, err)
		zs, pool := divided.Zones, divided.Pool

		claimed := 0
		all := contract.CPUs()
		var memory int64
		for _, z := range zs {
			require.GreaterOrEqual(t, z.CPUCapacity, 0)
			require.LessOrEqual(t, z.CPUCapacity, z.CPUs.Size())
			require.Zero(t, z.CPUCapacity%z.CPUStep)
			require.Zero(t, z.Memory%zones.MemoryStep(m.PageSize))
			require.True(t, z.CPUs.Intersection(all).IsEmpty(), "I1: a CPU in two zones")
			all = all.Union(z.CPUs)
			claimed += z.CPUCapacity
			memory += z.Memory
		}
		require.True(t, all.Intersection(cfg.ReservedCPUs.Union(m.Isolated).Union(m.Restricted)).IsEmpty())
		require.True(t, pool.CPUs == candidates)
		require.True(t, pool.CPUs.Intersection(pool.UnmanagedCPUs).IsEmpty())
		if cfg.SharedMode == zones.PoolFixed {
			require.True(t, pool.CPUs.Intersection(all).IsEmpty(), "a fixed pool never changes")
		} else {
			require.GreaterOrEqual(t, pool.CPUs.Size()-claimed, cfg.SharedMinCPUs)
		}
		var total int64
		for _, n := range m.NUMANodes {
			total += n.MemTotal
		}
		require.LessOrEqual(t, memory, total)

		again, err := zones.Divide(m, cfg)
		require.NoError(t, err)
		require.Equal(t, divided, again, "I8")
	})
}

// A06: a reserved CPU that goes offline must not stop the driver.
func TestReservedCPUGoesOffline(t *testing.T) {
	m := topologytest.T1().Machine()
	m.CPUs = m.CPUs[:3]
	m.Offline = contract.CPUs(3)
	divided, err := zones.Divide(m, zones.Config{
		GroupBy:       zones.NUMANode,
		ReservedCPUs:  contract.CPUs(0, 3),
		SharedMode:    zones.PoolDynamic,
		SharedMinCPUs: 1,
	})
	require.NoError(t, err)
	require.Equal(t, "1-2", divided.Zones[0].CPUs.String())
	require.Equal(t, "0-2", divided.Pool.CPUs.String())
}
