// SPDX-License-Identifier: Apache-2.0

package description

import "slices"

// Regular is a machine of equal parts: each count is per next larger part.
type Regular struct {
	Sockets, Nodes, L3s, Cores, Threads int
	// PageSize is the base page size, Memory the memory of a node, in bytes.
	PageSize, Memory int64
	// Hugepages maps page size in bytes to pages of a node.
	Hugepages map[int64]int64
	// Adjacent numbers siblings one after the other; else all first threads of
	// the machine come before all second threads.
	Adjacent bool
}

// Spec lists every CPU and node.
func (r Regular) Spec() Spec {
	s := Spec{PageSize: r.PageSize}
	total := r.Sockets * r.Nodes * r.L3s * r.Cores
	for core := range total {
		l3 := core / r.Cores
		node := l3 / r.L3s
		if core%(r.Cores*r.L3s) == 0 {
			s.Nodes = append(s.Nodes, Node{ID: node, Memory: r.Memory, Hugepages: r.Hugepages})
		}
		for thread := range r.Threads {
			id := core + thread*total
			if r.Adjacent {
				id = core*r.Threads + thread
			}
			s.CPUs = append(s.CPUs, CPU{
				ID: id, Core: core, CoreID: core % (r.Nodes * r.L3s * r.Cores), Cluster: NoCluster,
				L3: l3, Node: node, Socket: node / r.Nodes,
			})
		}
	}
	slices.SortFunc(s.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	return s
}
