// SPDX-License-Identifier: Apache-2.0

package topologytest

import "github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"

func arms() []Case {
	// The system cache is no cache of CPUs. Two cores share a port to it.
	altra := func(pages map[int64]int64) Spec {
		return grid{sockets: 2, nodes: 1, l3s: 1, cores: 128, threads: 1, memory: 256 * Gi, hugepages: pages}.spec().
			noCache().clusters(2).slit(levels(2, 1, 0, 20))
	}
	kunpeng := grid{sockets: 2, nodes: 2, l3s: 1, cores: 32, threads: 1, memory: 64 * Gi, hugepages: arm4k()}.spec().clusters(4).
		slit([][]int{{10, 12, 20, 22}, {12, 10, 22, 24}, {20, 22, 10, 12}, {22, 24, 12, 10}})
	grace := func(sockets int, memory int64) Spec {
		return grid{sockets: sockets, nodes: 1, l3s: 1, cores: 72, threads: 1, memory: memory, hugepages: arm64k()}.spec().pages(64 * Ki)
	}
	// The GPU's memory, and 7 nodes for the GPU's partitions, without memory.
	hopper := grace(1, 480*Gi).dram(tierDRAM, topology.MemoryPerformance{}).
		add(1, Node{Memory: 96 * Gi, Hugepages: arm64k(), Tier: tierDRAM}).add(7, Node{})
	rows := levels(9, 9, 255, 0)
	for i := 1; i < len(rows); i++ {
		rows[0][i], rows[i][0] = 80, 80
	}
	rockchip := grid{sockets: 1, nodes: 1, l3s: 1, cores: 8, threads: 1, memory: 16 * Gi, hugepages: arm4k()}.spec().clusters(4)
	for i := range rockchip.CPUs {
		rockchip.CPUs[i].Capacity = []int{530, 1024}[i/4]
	}
	rockchip.NoNUMA = true
	return []Case{
		{"altra-max", "2 × Ampere Altra Max M128-30, 4 KiB pages: no L3 that Linux knows, clusters of 2", altra(arm4k())},
		{"altra-max-64k", "the same with 64 KiB pages", altra(arm64k()).pages(64 * Ki)},
		{"kunpeng-920", "2 × Kunpeng 920-6426: clusters of 4, two nodes per socket", kunpeng},
		{"grace-superchip", "NVIDIA Grace CPU Superchip, 64 KiB pages", grace(2, 240*Gi).slit(levels(2, 1, 0, 40))},
		{"grace-hopper", "NVIDIA GH200, 64 KiB pages: the GPU's memory is a node, 7 more are for its partitions", hopper.slit(rows)},
		{"gb10", "NVIDIA GB10 (10 × Cortex-A725, 10 × Cortex-X925 in two clusters), capacities by the frequency of each core", gb10()},
		{"snapdragon-8-gen-2", "Snapdragon 8 Gen 2 (3 × Cortex-A510, 2 × A715, 2 × A710, X3), a phone's kernel without NUMA", phone()},
		{"rk3588", "Rockchip RK3588 (4 × Cortex-A55, 4 × Cortex-A76), kernel without NUMA", rockchip},
	}
}

// gb10 has five cores of each kind in each cluster.
func gb10() Spec {
	s := grid{sockets: 1, nodes: 1, l3s: 2, cores: 10, threads: 1, memory: 128 * Gi, hugepages: arm4k()}.spec()
	for i := range s.CPUs {
		s.CPUs[i].MIDR = []uint64{0x410fd871, 0x410fd851}[i/5%2]
		s.CPUs[i].Capacity = []int{718, 997, 731, 1017}[i/5]
	}
	s.CPUs[19].Capacity = 1024
	return s
}

// phone has one kind of efficiency cores and three of performance cores.
func phone() Spec {
	s := grid{sockets: 1, nodes: 1, l3s: 1, cores: 8, threads: 1, memory: 12 * Gi, hugepages: arm4k()}.spec()
	for i := range s.CPUs {
		s.CPUs[i].MIDR = []uint64{0x411fd461, 0x411fd461, 0x411fd461, 0x411fd4d0, 0x411fd4d0, 0x412fd470, 0x412fd470, 0x411fd4e0}[i]
		s.CPUs[i].Capacity = []int{206, 206, 206, 609, 609, 609, 609, 1024}[i]
	}
	s.NoNUMA = true
	return s
}

func others() []Case {
	power := grid{sockets: 2, nodes: 1, l3s: 10, cores: 2, threads: 4, memory: 256 * Gi, hugepages: x86(), adjacent: true}.spec().
		pages(64 * Ki)
	power.Nodes[1].ID = 8
	for i := range power.CPUs {
		power.CPUs[i].Node *= 8
		power.CPUs[i].Socket *= 8
	}
	rows := levels(6, 1, 0, 80)
	rows[0][1], rows[1][0] = 40, 40
	for id := 252; id < 256; id++ {
		power.Nodes = append(power.Nodes, Node{ID: id, Memory: 16 * Gi, Hugepages: x86()})
	}
	raptor := T5()
	raptor.Nodes[0].Hugepages = x86()
	return []Case{
		{"power9-ac922", "IBM AC922: 2 × POWER9, 20 cores of 4 threads, 64 KiB pages; memory of 4 GPUs as nodes 252 to 255",
			power.slit(rows)},
		{"core-i9-13900k", "Core i9-13900K (Raptor Lake): 8 performance and 16 efficiency cores", raptor},
	}
}

func virtual() []Case {
	single := grid{sockets: 1, nodes: 1, l3s: 1, cores: 1, threads: 1, memory: 2 * Gi, hugepages: map[int64]int64{2 * Mi: 0}}.spec()
	single.NoNUMA = true
	numa := grid{
		sockets: 2, nodes: 1, l3s: 1, cores: 4, threads: 2,
		memory: 32 * Gi, hugepages: map[int64]int64{2 * Mi: 4096, Gi: 0}, adjacent: true,
	}.spec()
	plain := grid{sockets: 8, nodes: 1, l3s: 1, cores: 1, threads: 1, memory: 0}.spec().noCache()
	plain.Nodes = []Node{{ID: 0, Memory: 16 * Gi, Hugepages: map[int64]int64{2 * Mi: 0}}}
	for i := range plain.CPUs {
		plain.CPUs[i].Node = 0
	}
	return []Case{
		{"vm-1cpu", "virtual machine with one CPU, kernel without NUMA", single},
		{"vm-vnuma", "virtual machine with 2 virtual NUMA nodes, 4 cores of 2 threads each, and 2 MiB hugepages",
			numa.slit(levels(2, 1, 0, 20))},
		{"vm-no-l3", "virtual machine with 8 CPUs, each a socket, one node, no L3", plain},
	}
}
