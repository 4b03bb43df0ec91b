// SPDX-License-Identifier: Apache-2.0

package topologytest

import (
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
)

// Units of bytes.
const (
	Ki = int64(1) << 10
	Mi = int64(1) << 20
	Gi = int64(1) << 30
)

// grid is a regular machine: each count is per next larger part.
type grid struct {
	sockets, nodes, l3s, cores, threads int
	memory                              int64
	hugepages                           map[int64]int64
	// adjacent numbers siblings one after the other; else all first threads of
	// the machine come before all second threads.
	adjacent bool
}

func (g grid) spec() Spec {
	return Spec(description.Regular{
		Sockets: g.sockets, Nodes: g.nodes, L3s: g.l3s, Cores: g.cores, Threads: g.threads,
		Memory: g.memory, Hugepages: g.hugepages, Adjacent: g.adjacent, PageSize: 4 * Ki,
	}.Spec())
}

// T1 has 4 CPUs on one socket, siblings (0,2)(1,3).
func T1() Spec {
	return grid{sockets: 1, nodes: 1, l3s: 1, cores: 2, threads: 2, memory: 8 * Gi, hugepages: map[int64]int64{2 * Mi: 0}}.spec()
}

// T2 has 8 CPUs on 2 sockets = 2 NUMA nodes, siblings (0,4)(1,5)|(2,6)(3,7);
// core_id 0,1 repeats on both sockets.
func T2() Spec {
	return grid{sockets: 2, nodes: 1, l3s: 1, cores: 2, threads: 2, memory: 16 * Gi, hugepages: map[int64]int64{2 * Mi: 512, Gi: 2}}.spec()
}

// T3 is the test cluster's node: 2 sockets of 2 cores of 2 threads, 2 NUMA
// nodes, 2Mi hugepages on both.
func T3() Spec {
	return grid{
		sockets: 2, nodes: 1, l3s: 1, cores: 2, threads: 2,
		memory: 2 * Gi, hugepages: map[int64]int64{2 * Mi: 128}, adjacent: true,
	}.spec()
}

// T4 has 4 sockets, 8 NUMA nodes and 512 CPUs, an L3 per 8 cores.
func T4() Spec {
	return grid{
		sockets: 4, nodes: 2, l3s: 4, cores: 8, threads: 2,
		memory: 128 * Gi, hugepages: map[int64]int64{2 * Mi: 1024, Gi: 8},
	}.spec()
}

// T5 is hybrid: 8 performance cores of 2 threads and 16 efficiency cores in
// clusters of 4, one L3.
func T5() Spec {
	s := Spec{PageSize: 4 * Ki, Nodes: []Node{{ID: 0, Memory: 64 * Gi}}}
	for id := range 16 {
		s.CPUs = append(s.CPUs, CPU{ID: id, Core: id / 2, CoreID: id / 2 * 4, Cluster: id / 2, Type: topology.CPUPerformance})
	}
	for id := 16; id < 32; id++ {
		s.CPUs = append(s.CPUs, CPU{ID: id, Core: id, CoreID: id + 16, Cluster: 100 + (id-16)/4, Type: topology.CPUEfficiency})
	}
	return s
}

// T6 is T2 and a node 2 with memory only.
func T6() Spec {
	s := T2()
	s.Nodes = append(s.Nodes, Node{ID: 2, Memory: 64 * Gi, Hugepages: map[int64]int64{2 * Mi: 0, Gi: 0}})
	return s
}

// T7 is arm64 with 64Ki pages and no shared cache: 2 nodes of 4 CPUs.
func T7() Spec {
	s := grid{
		sockets: 2, nodes: 1, l3s: 1, cores: 4, threads: 1, memory: 64*Gi + 192*Ki,
		hugepages: map[int64]int64{2 * Mi: 16, 512 * Mi: 4, 16 * Gi: 1},
	}.spec()
	s.PageSize = 64 * Ki
	for i := range s.CPUs {
		s.CPUs[i].L3 = NoCache
		s.CPUs[i].Capacity = 1024
	}
	return s
}

// T8 has node ids 0 and 8, cores of 4 threads and offline CPUs.
func T8() Spec {
	s := Spec{PageSize: 64 * Ki}
	for i, node := range []int{0, 8} {
		s.Nodes = append(s.Nodes, Node{ID: node, Memory: 32 * Gi, Hugepages: map[int64]int64{16 * Mi: 0, 16 * Gi: 0}})
		for id := i * 80; id < i*80+16; id++ {
			s.CPUs = append(s.CPUs, CPU{
				ID: id, Core: id / 4, CoreID: id / 4 * 4, Cluster: NoCluster, L3: i, Node: node, Socket: node,
				Offline: id%8 == 3 || id%80 >= 12,
			})
		}
	}
	return s
}

// Case is a named machine.
type Case struct {
	Name string
	// Hardware describes the machine.
	Hardware string
	Spec     Spec
}

// All returns T1 to T8, the machines of the acceptance cases.
func All() []Case {
	return []Case{
		{"T1", "4 CPUs, one socket", T1()},
		{"T2", "8 CPUs, 2 sockets with core ids that repeat", T2()},
		{"T3", "8 CPUs, the test cluster's node", T3()},
		{"T4", "512 CPUs, 4 sockets, 8 nodes", T4()},
		{"T5", "hybrid", T5()},
		{"T6", "T2 and a memory-only node", T6()},
		{"T7", "arm64 with 64 KiB pages, no shared cache", T7()},
		{"T8", "sparse ids, offline CPUs", T8()},
	}
}

// Random draws a machine of up to 96 CPUs: regular or hybrid, with gaps in
// its ids, offline CPUs, memory-only nodes of any kind, nodes without memory.
func Random(t *rapid.T) Spec {
	if rapid.IntRange(0, 19).Draw(t, "hybrid") == 19 {
		return T5()
	}
	g := grid{
		sockets:   rapid.IntRange(1, 2).Draw(t, "sockets"),
		nodes:     rapid.IntRange(1, 2).Draw(t, "nodes"),
		l3s:       rapid.IntRange(1, 3).Draw(t, "l3s"),
		cores:     rapid.IntRange(1, 4).Draw(t, "cores"),
		threads:   rapid.SampledFrom([]int{1, 2, 2, 2}).Draw(t, "threads"),
		memory:    rapid.Int64Range(0, 64).Draw(t, "memory") * 512 * Mi,
		hugepages: map[int64]int64{2 * Mi: rapid.Int64Range(0, 200).Draw(t, "hugepages")},
		adjacent:  rapid.Bool().Draw(t, "adjacent"),
	}
	s := g.spec()
	gap := rapid.IntRange(1, 3).Draw(t, "gap")
	for i := range s.CPUs {
		s.CPUs[i].ID *= gap
		s.CPUs[i].Node *= gap
		s.CPUs[i].Offline = i > 0 && rapid.IntRange(0, 15).Draw(t, "offline") == 15
	}
	for i := range s.Nodes {
		s.Nodes[i].ID *= gap
	}
	if rapid.Bool().Draw(t, "memory-only node") {
		s.Nodes = append(s.Nodes, Node{
			ID: s.Nodes[len(s.Nodes)-1].ID + 1, Memory: 4 * Gi,
			DAX: rapid.SampledFrom([]DAX{"", "", CXL, NVD, HMEM}).Draw(t, "DAX"),
		})
	}
	for i := range s.Nodes {
		s.Nodes[i].Tier = rapid.SampledFrom([]int{0, 1, 4, 4, 22}).Draw(t, "tier")
		if rapid.Bool().Draw(t, "HMAT") {
			s.Nodes[i].Performance = topology.MemoryPerformance{
				ReadBandwidth: rapid.Int64Range(0, 900).Draw(t, "bandwidth") * 1000,
				ReadLatency:   rapid.Int64Range(0, 400).Draw(t, "latency"),
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "no cache") == 3 {
		for i := range s.CPUs {
			s.CPUs[i].L3 = NoCache
		}
	}
	s.NoNUMA = len(s.Nodes) == 1 && s.Nodes[0].ID == 0 && rapid.Bool().Draw(t, "no NUMA")
	return s
}
