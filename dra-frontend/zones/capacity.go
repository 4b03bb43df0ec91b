// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"maps"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// CPUMixed is the type of a zone with several kinds of cores.
const CPUMixed topology.CPUType = "mixed"

// Hardware describes the parts of a zone. Counts are of CPUs that may be
// claimed; they are zero in a zone without such CPUs.
type Hardware struct {
	// SocketID is the socket of all CPUs of the zone, -1 for none or several.
	SocketID int
	NumCPUs  int
	NumCores int
	L3Caches int
	// ThreadsPerCore is the number of threads of the largest core that may be
	// claimed.
	ThreadsPerCore int
	// MemoryType is empty in a zone without memory. All memory of a zone is of
	// one kind: only nodes with CPUs, which have DRAM, share a zone.
	MemoryType topology.MemoryType
	// Performance is the memory's performance if one node has all memory of the
	// zone.
	Performance topology.MemoryPerformance
	// Distances of a NUMA zone maps the id of each node with CPUs or memory,
	// its own included, to the distance.
	Distances map[int]int
	// NearestCPUNode and NearestCPUDistance are for a zone of a node without
	// CPUs; -1 in all other zones.
	NearestCPUNode, NearestCPUDistance int
	// NUMANodes are the nodes of the zone's CPUs and memory, offered or not.
	NUMANodes contract.NUMANodeSet
	// PCIeRoots are the PCI host bridges that are local to a node of the zone,
	// sorted.
	PCIeRoots []string
	// Isolated and Restricted count the zone's CPUs that are left out: CPUs of
	// isolcpus, and CPUs that no pod can have.
	Isolated, Restricted int
	// CPUType is empty in a zone without CPUs.
	CPUType topology.CPUType
	// Layout is zero where no rule gives the zone's cores and L3s.
	Layout cpulayout.Layout
}

// SMTEnabled reports whether a core has more than one thread.
func (h Hardware) SMTEnabled() bool { return h.ThreadsPerCore > 1 }

// zone returns the segment's zone: the CPUs of the segment that may be claimed,
// in whole steps, and its memory.
func (s segment) zone(m topology.Machine, c Config, claimable, held contract.CPUSet) Zone {
	z := Zone{Name: s.name, Kind: s.kind, ID: s.id, Hugepages: make(map[int64]int64)}
	threads := make(map[int]int)
	for _, cpu := range s.cpus {
		threads[cpu.Core]++
	}
	cpus := make([]topology.CPU, 0, len(s.cpus))
	for _, cpu := range s.cpus {
		if claimable.Contains(cpu.ID) {
			cpus = append(cpus, cpu)
		}
	}
	z.CPUStep = 1
	if c.WholeCores {
		z.CPUStep, cpus = wholeCores(cpus, threads)
	}
	ids := make([]int, 0, len(cpus))
	for _, cpu := range cpus {
		ids = append(ids, cpu.ID)
		z.ThreadsPerCore = max(z.ThreadsPerCore, threads[cpu.Core])
	}
	z.CPUs = contract.CPUs(ids...)
	z.CPUCapacity = (len(ids) - strays(cpus, held, z.CPUStep)) / z.CPUStep * z.CPUStep
	z.describe(cpus)
	z.Layout, _ = cpulayout.Find(s.cpus, z.CPUs)
	z.countLeftOut(m, c, s.cpus)
	z.SocketID = socketOf(s.cpus)
	for _, n := range s.nodes {
		z.addMemory(m.PageSize, n, c)
		z.NUMANodes = z.NUMANodes.Union(contract.NUMANodes(n.ID))
		z.PCIeRoots = append(z.PCIeRoots, n.PCIeRoots...)
	}
	slices.Sort(z.PCIeRoots)
	z.locate(m, s.nodes)
	return z
}

// wholeCores returns the step for claims of whole cores, and the CPUs of the
// cores that fit the step. A step is the number of threads of a core. The step
// that offers most CPUs is taken, the largest of several. threads maps each
// core to its online threads.
func wholeCores(cpus []topology.CPU, threads map[int]int) (step int, fit []topology.CPU) {
	sizes := make(map[int]bool)
	for _, cpu := range cpus {
		sizes[threads[cpu.Core]] = true
	}
	descending := slices.Sorted(maps.Keys(sizes))
	slices.Reverse(descending)
	step = 1
	for i, size := range descending {
		if of := coresOf(cpus, threads, descending[i:]); len(of) > len(fit) {
			step, fit = size, of
		}
	}
	return step, fit
}

// coresOf returns the CPUs of cores whose sizes divide each other in turn, as 4, 2
// and 1 do, beginning with the first size. Free cores of such sizes that have
// enough CPUs always add up to exactly the first size (I2). A core of three CPUs
// (four, with one thread offline) does not fit four.
func coresOf(cpus []topology.CPU, threads map[int]int, descending []int) []topology.CPU {
	taken, last := make(map[int]bool), descending[0]
	for _, size := range descending {
		if last%size == 0 {
			taken[size], last = true, size
		}
	}
	var out []topology.CPU
	for _, cpu := range cpus {
		if taken[threads[cpu.Core]] {
			out = append(out, cpu)
		}
	}
	return out
}

// strays counts the free CPUs of cores that claims hold in part. Where claims
// get whole cores, no claim can get these CPUs. Only claims from before
// WholeCores hold parts of cores.
func strays(cpus []topology.CPU, held contract.CPUSet, step int) int {
	if step == 1 {
		return 0
	}
	taken, free := make(map[int]int), make(map[int]int)
	for _, cpu := range cpus {
		if held.Contains(cpu.ID) {
			taken[cpu.Core]++
		} else {
			free[cpu.Core]++
		}
	}
	n := 0
	for core := range taken {
		n += free[core]
	}
	return n
}

func (z *Zone) describe(cpus []topology.CPU) {
	cores, l3s := make(map[int]bool), make(map[int]bool)
	for _, c := range cpus {
		cores[c.Core], l3s[c.L3] = true, true
		switch z.CPUType {
		case "":
			z.CPUType = c.Type
		case c.Type:
		default:
			z.CPUType = CPUMixed
		}
	}
	z.NumCPUs, z.NumCores, z.L3Caches = len(cpus), len(cores), len(l3s)
}

func socketOf(cpus []topology.CPU) int {
	if len(cpus) == 0 {
		return -1
	}
	for _, c := range cpus {
		if c.Socket != cpus[0].Socket {
			return -1
		}
	}
	return cpus[0].Socket
}

// locate sets a NUMA zone's distances and its nearest node with CPUs.
func (z *Zone) locate(m topology.Machine, nodes []topology.NUMANode) {
	z.NearestCPUNode, z.NearestCPUDistance = -1, -1
	if z.Kind != NUMANode {
		return
	}
	own := nodes[0]
	z.Distances = make(map[int]int, len(m.NUMANodes))
	for i, n := range m.NUMANodes {
		if n.MemTotal > 0 || !n.CPUs.IsEmpty() {
			z.Distances[n.ID] = own.Distances[i]
		}
	}
	if own.CPUs.IsEmpty() {
		if id, distance, found := m.NearestCPUNode(own); found {
			z.NearestCPUNode, z.NearestCPUDistance = id, distance
		}
	}
}

// minMemoryStep, in bytes, is less than any container needs. It keeps claims of
// a few pages from filling the node file.
const minMemoryStep = 1 << 20

// MemoryStep returns the step of claimed memory in bytes. pageSize is the
// machine's base page size in bytes.
func MemoryStep(pageSize int64) int64 { return max(pageSize, minMemoryStep) }

// addMemory adds the node's memory and hugepages. Memory excludes hugepages, as
// in Kubernetes' resource model.
func (z *Zone) addMemory(pageSize int64, n topology.NUMANode, c Config) {
	if !c.offers(n) {
		return
	}
	z.MemoryType, z.Performance = n.Memory, n.Performance
	if !z.Mems.IsEmpty() {
		z.Performance = topology.MemoryPerformance{}
	}
	z.Mems = z.Mems.Union(contract.NUMANodes(n.ID))
	memory := n.MemTotal
	for size, pages := range n.Hugepages {
		memory -= size * pages
		if left := pages - c.ReservedHugepages[n.ID][size]; left > 0 {
			z.Hugepages[size] += left
		}
	}
	if memory -= c.ReservedMemory[n.ID]; memory > 0 {
		step := MemoryStep(pageSize)
		z.Memory += memory / step * step
	}
}
