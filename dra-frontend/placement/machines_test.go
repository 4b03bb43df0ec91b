// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// builder makes machines core by core.
type builder struct{ m topology.Machine }

// addL3 adds cores to a new L3 of the NUMA node and socket.
func (b *builder) addL3(socket, node int, kinds func() topology.CPUType, threads ...int) {
	l3 := len(b.m.CPUs)
	for len(b.m.NUMANodes) <= node {
		b.m.NUMANodes = append(b.m.NUMANodes, topology.NUMANode{ID: len(b.m.NUMANodes)})
	}
	for _, n := range threads {
		first, kind := len(b.m.CPUs), kinds()
		for range n {
			b.m.CPUs = append(b.m.CPUs, topology.CPU{
				ID: len(b.m.CPUs), Core: first, Cluster: first, L3: l3, Node: node, Socket: socket, Type: kind,
			})
		}
	}
}

// machine sets the distances between NUMA nodes.
func (b *builder) machine(distance func(a, b int) int) topology.Machine {
	for i := range b.m.NUMANodes {
		n := &b.m.NUMANodes[i]
		var ids []int
		for _, c := range b.m.CPUs {
			if c.Node == i {
				ids = append(ids, c.ID)
			}
		}
		n.CPUs = contract.CPUs(ids...)
		for j := range b.m.NUMANodes {
			n.Distances = append(n.Distances, distance(i, j))
		}
	}
	return b.m
}

func standard() topology.CPUType { return topology.CPUStandard }

func flat(a, b int) int {
	if a == b {
		return 10
	}
	return 20
}

// tree returns a regular machine: each number is per next larger part.
func tree(sockets, nodes, l3s, cores, threads int) topology.Machine {
	b := &builder{}
	sizes := make([]int, cores)
	for i := range sizes {
		sizes[i] = threads
	}
	for node := range sockets * nodes {
		for range l3s {
			b.addL3(node/nodes, node, standard, sizes...)
		}
	}
	return b.machine(flat)
}

// drawSmall draws an irregular machine of 1 to 16 CPUs.
func drawSmall(t *rapid.T) topology.Machine {
	b := &builder{}
	kinds := standard
	if rapid.IntRange(0, 2).Draw(t, "hybrid") == 0 {
		kinds = func() topology.CPUType {
			return rapid.SampledFrom([]topology.CPUType{topology.CPUPerformance, topology.CPUEfficiency}).Draw(t, "kind")
		}
	}
	left := rapid.IntRange(1, 16).Draw(t, "CPUs")
	most := rapid.IntRange(1, 4).Draw(t, "threads")
	same := rapid.Bool().Draw(t, "cores of one size")
	for node, socket := 0, 0; left > 0; node++ {
		if node > 0 && rapid.Bool().Draw(t, "other socket") {
			socket++
		}
		for range rapid.IntRange(1, 4).Draw(t, "L3s") {
			var sizes []int
			for range rapid.IntRange(1, 6).Draw(t, "cores") {
				size := most
				if !same {
					size = rapid.IntRange(1, most).Draw(t, "core")
				}
				if size = min(size, left); size > 0 {
					sizes = append(sizes, size)
					left -= size
				}
			}
			if len(sizes) > 0 {
				b.addL3(socket, node, kinds, sizes...)
			}
		}
	}
	distances := make(map[[2]int]int)
	return b.machine(func(x, y int) int {
		pair := [2]int{min(x, y), max(x, y)}
		if _, known := distances[pair]; !known {
			distances[pair] = 10
			if x != y {
				distances[pair] = rapid.SampledFrom([]int{11, 20, 20, 32}).Draw(t, "distance")
			}
		}
		return distances[pair]
	})
}
