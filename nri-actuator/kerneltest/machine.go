// SPDX-License-Identifier: Apache-2.0

package kerneltest

// Machine is a machine with ids below 512.
type Machine struct {
	// CPUs are the ids of all CPUs, Nodes of all NUMA nodes, MemoryNodes of the NUMA
	// nodes with memory.
	CPUs, Nodes, MemoryNodes []int
	// PageSize is the size of a page, HugepageSizes are the sizes of hugepages, in bytes.
	PageSize      int64
	HugepageSizes []int64
}

// Regular returns a machine with CPUs 0 to cpus-1 and NUMA nodes 0 to nodes-1, and the
// page sizes of x86.
func Regular(cpus, nodes int) Machine {
	m := Machine{CPUs: first(cpus).members(), Nodes: first(nodes).members(), PageSize: 4 << 10, HugepageSizes: []int64{2 << 20, 1 << 30}}
	m.MemoryNodes = m.Nodes
	return m
}
