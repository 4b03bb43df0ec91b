// SPDX-License-Identifier: Apache-2.0

package topologytest

import (
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Library returns real machines: CPUs, caches, nodes and page sizes follow
// public facts about the hardware and what Linux shows on it. Amounts of memory
// are a common fitting; distances and latencies are typical, bandwidths
// theoretical peaks, nothing is measured.
func Library() []Case {
	return slices.Concat(xeons(), epycs(), arms(), others(), virtual())
}

// Hugepage sizes that the kernel knows, without any pages: x86, and arm64 by
// the base page size.
func x86() map[int64]int64    { return map[int64]int64{2 * Mi: 0, Gi: 0} }
func arm4k() map[int64]int64  { return map[int64]int64{64 * Ki: 0, 2 * Mi: 0, 32 * Mi: 0, Gi: 0} }
func arm64k() map[int64]int64 { return map[int64]int64{2 * Mi: 0, 512 * Mi: 0, 16 * Gi: 0} }

// levels returns the distances of nodes on sockets of perSocket nodes each: 10
// to the node itself, near on the socket, far to another socket.
func levels(nodes, perSocket, near, far int) [][]int {
	rows := make([][]int, nodes)
	for a := range rows {
		for b := range nodes {
			d := far
			switch {
			case a == b:
				d = 10
			case a/perSocket == b/perSocket:
				d = near
			}
			rows[a] = append(rows[a], d)
		}
	}
	return rows
}

func (s Spec) slit(rows [][]int) Spec {
	for i := range s.Nodes {
		s.Nodes[i].Distances = rows[i]
	}
	return s
}

// clusters puts neighbouring cores into clusters: cores that share an L2 on
// x86, cores that firmware groups on arm64.
func (s Spec) clusters(cores int) Spec {
	for i := range s.CPUs {
		s.CPUs[i].Cluster = s.CPUs[i].Core / cores
	}
	return s
}

func (s Spec) cacheOfSocket() Spec {
	for i := range s.CPUs {
		s.CPUs[i].L3 = s.CPUs[i].Socket
	}
	return s
}

func (s Spec) noCache() Spec {
	for i := range s.CPUs {
		s.CPUs[i].L3 = NoCache
	}
	return s
}

func (s Spec) pages(size int64) Spec {
	s.PageSize = size
	return s
}

// dram sets tier and performance of the nodes that s has.
func (s Spec) dram(tier int, p topology.MemoryPerformance) Spec {
	for i := range s.Nodes {
		s.Nodes[i].Tier, s.Nodes[i].Performance = tier, p
	}
	return s
}

// add appends count memory-only nodes like n, with the next ids.
func (s Spec) add(count int, n Node) Spec {
	for range count {
		n.ID = s.Nodes[len(s.Nodes)-1].ID + 1
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// tierDRAM is the kernel's tier of memory without known performance; tierDAX is
// its tier of a DAX device without known performance.
const (
	tierDRAM = 4
	tierDAX  = 22
)

func xeons() []Case {
	icelake := grid{sockets: 2, nodes: 1, l3s: 1, cores: 40, threads: 2, memory: 256 * Gi, hugepages: x86()}.spec().clusters(1)
	sapphire := grid{sockets: 2, nodes: 4, l3s: 1, cores: 14, threads: 2, memory: 64 * Gi, hugepages: map[int64]int64{2 * Mi: 0, Gi: 16}}.
		spec().clusters(1)
	flat := grid{sockets: 2, nodes: 1, l3s: 1, cores: 56, threads: 2, memory: 128 * Gi, hugepages: x86()}.spec().clusters(1).
		dram(tierDRAM, topology.MemoryPerformance{ReadBandwidth: 307200, ReadLatency: 110}).
		add(2, Node{
			Memory: 64 * Gi, Hugepages: x86(), Tier: 1, DAX: HMEM,
			Performance: topology.MemoryPerformance{ReadBandwidth: 1638400, ReadLatency: 130},
		})
	flat4 := grid{sockets: 2, nodes: 4, l3s: 1, cores: 14, threads: 2, memory: 32 * Gi, hugepages: x86()}.spec().
		clusters(1).cacheOfSocket().
		dram(tierDRAM, topology.MemoryPerformance{ReadBandwidth: 76800, ReadLatency: 105}).
		add(8, Node{
			Memory: 16 * Gi, Hugepages: x86(), Tier: 1, DAX: HMEM,
			Performance: topology.MemoryPerformance{ReadBandwidth: 409600, ReadLatency: 120},
		})
	optane := grid{sockets: 2, nodes: 1, l3s: 1, cores: 28, threads: 2, memory: 192 * Gi, hugepages: x86()}.spec().clusters(1).
		dram(tierDRAM, topology.MemoryPerformance{}).
		add(2, Node{Memory: 756 * Gi, Hugepages: x86(), Tier: tierDAX, DAX: NVD})
	emerald := grid{sockets: 2, nodes: 1, l3s: 1, cores: 64, threads: 2, memory: 512 * Gi, hugepages: x86()}.spec().clusters(1).
		dram(tierDRAM, topology.MemoryPerformance{ReadBandwidth: 358400, ReadLatency: 110}).
		add(1, Node{
			Memory: 256 * Gi, Hugepages: x86(), Tier: tierDRAM, DAX: CXLMapped,
			Performance: topology.MemoryPerformance{ReadBandwidth: 64000, ReadLatency: 250},
		})
	return []Case{
		{"xeon-8380", "2 × Xeon Platinum 8380 (Ice Lake), SNC off", icelake.slit(levels(2, 1, 0, 20))},
		{"xeon-8480-snc4", "2 × Xeon Platinum 8480+ (Sapphire Rapids), SNC4: the L3 of the socket spans its nodes",
			sapphire.cacheOfSocket().slit(levels(8, 4, 12, 21))},
		{"xeon-max-9480-flat", "2 × Xeon Max 9480, HBM beside DDR5 (flat mode), firmware with HMAT",
			flat.slit([][]int{{10, 21, 13, 23}, {21, 10, 23, 13}, {13, 23, 10, 23}, {23, 13, 23, 10}})},
		{"xeon-max-9480-flat-snc4", "the same with SNC4: 16 nodes, 8 of them HBM", flat4.slit(flatDistances(8, 4))},
		{"xeon-8280-optane", "2 × Xeon Platinum 8280 with Optane as memory (daxctl system-ram)",
			optane.slit([][]int{{10, 21, 17, 28}, {21, 10, 28, 17}, {17, 28, 10, 28}, {28, 17, 28, 10}})},
		{"xeon-8592-cxl", "2 × Xeon Platinum 8592+, CXL expander mapped by firmware: no DAX device, but HMAT",
			emerald.slit([][]int{{10, 21, 14}, {21, 10, 24}, {14, 24, 10}})},
	}
}

// flatDistances returns the distances of nodes with DRAM, perSocket on a
// socket, which are followed by a node with HBM for each.
func flatDistances(dram, perSocket int) [][]int {
	rows := make([][]int, 2*dram)
	for a := range rows {
		for b := range rows {
			sameKind, sameTile, sameSocket := a/dram == b/dram, a%dram == b%dram, a%dram/perSocket == b%dram/perSocket
			d := 21
			switch {
			case a == b:
				d = 10
			case sameTile:
				d = 13
			case sameSocket && sameKind:
				d = 12
			case sameSocket:
				d = 14
			case !sameKind || a >= dram:
				d = 23
			}
			rows[a] = append(rows[a], d)
		}
	}
	return rows
}

func epycs() []Case {
	genoa := func(nodes, l3s int, memory int64) Spec {
		return grid{sockets: 2, nodes: nodes, l3s: l3s, cores: 8, threads: 2, memory: memory, hugepages: x86()}.spec().clusters(1).
			slit(levels(2*nodes, nodes, 12, 32))
	}
	milan := grid{sockets: 2, nodes: 2, l3s: 4, cores: 8, threads: 2, memory: 128 * Gi, hugepages: x86()}.spec().clusters(1)
	bergamo := grid{sockets: 1, nodes: 1, l3s: 16, cores: 8, threads: 2, memory: 768 * Gi, hugepages: x86()}.spec().clusters(1)
	expanders := genoa(1, 12, 384*Gi).dram(tierDRAM, topology.MemoryPerformance{}).
		add(2, Node{Memory: 128 * Gi, Hugepages: x86(), Tier: tierDAX, DAX: CXL})
	return []Case{
		{"epyc-7763-nps2", "2 × EPYC 7763 (Milan), NPS2", milan.slit(levels(4, 2, 12, 32))},
		{"epyc-9654-nps1", "2 × EPYC 9654 (Genoa), NPS1", genoa(1, 12, 768*Gi)},
		{"epyc-9654-nps4", "2 × EPYC 9654 (Genoa), NPS4", genoa(4, 3, 192*Gi)},
		{"epyc-9654-cxl", "2 × EPYC 9654 with two CXL expanders as system RAM, no HMAT",
			expanders.slit([][]int{{10, 32, 50, 60}, {32, 10, 60, 50}, {50, 60, 10, 60}, {60, 50, 60, 10}})},
		{"epyc-9754", "EPYC 9754 (Bergamo): two L3s on each of 8 dies", bergamo.slit(levels(1, 1, 0, 0))},
	}
}
