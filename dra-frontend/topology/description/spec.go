// SPDX-License-Identifier: Apache-2.0

// Package description turns a description of a machine into the files that a
// kernel would show for it, for simulations of machines that are not at hand.
// The real reader reads these files, as it reads a captured machine. The package
// is the inverse of package topology.
package description

import (
	"fmt"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// NoCache and NoCluster mean that the kernel shows none.
const (
	NoCache   = -1
	NoCluster = -1
)

// Spec describes a machine.
type Spec struct {
	PageSize int64
	CPUs     []CPU
	Nodes    []Node
	// NoNUMA leaves the node directory out: everything is on Nodes[0].
	NoNUMA bool
	// Present adds the list of present CPUs, from which the reader learns the
	// offline CPUs.
	Present bool
	// Isolated are the CPUs of the kernel's parameter isolcpus.
	Isolated []int
}

// CPU describes a hardware thread. Core, L3 and Cluster are any numbers that
// the members of a group share, unique in the machine.
type CPU struct {
	ID, Core, Cluster, L3, Node, Socket int
	// CoreID is the content of core_id, which may repeat.
	CoreID  int
	Offline bool
	// Type is performance or efficiency on hybrid machines.
	Type topology.CPUType
	// Capacity is the scheduler's capacity, 0 for no such file.
	Capacity int
	// MIDR is the register that identifies an Arm core's design, 0 for no such
	// file.
	MIDR uint64
}

// Node describes a NUMA node.
type Node struct {
	ID int
	// Memory is in bytes.
	Memory int64
	// Hugepages maps page size in bytes to pages.
	Hugepages map[int64]int64
	// Distances are to the nodes of the machine, in their order; nil: they grow
	// with the difference of ids.
	Distances []int
	// Tier is the memory tier, 0 for none.
	Tier int
	// Performance is what firmware reports; zero for no report.
	Performance topology.MemoryPerformance
	// DAX is the bus of the node's memory; empty for none.
	DAX DAX
}

// DAX is a bus. Its devices become memory of a NUMA node of their own.
type DAX string

// Buses. HMEM is for memory that firmware reserves for a purpose. CXLMapped is
// for memory that firmware maps at boot, without a DAX device.
const (
	CXL       DAX = "cxl"
	CXLMapped DAX = "cxl, mapped by firmware"
	NVD       DAX = "nd"
	HMEM      DAX = "hmem"
)

// Files maps paths to contents.
type Files map[string][]byte

// Proc returns the files of /proc.
func (s Spec) Proc() Files {
	var total int64
	for _, n := range s.Nodes {
		total += n.Memory
	}
	t := Files{}
	t.file("meminfo", "MemTotal:       %d kB\nMemFree:        1024 kB", total>>10)
	return t
}

// Sys returns the files of /sys.
func (s Spec) Sys() Files {
	t := Files{}
	t.file("devices/system/cpu/online", "%s", s.ids(func(c CPU) bool { return true }))
	if s.Present {
		t.file("devices/system/cpu/present", "%s", s.present())
	}
	if len(s.Isolated) > 0 {
		t.file("devices/system/cpu/isolated", "%s", contract.CPUs(s.Isolated...))
	}
	for _, c := range s.CPUs {
		if !c.Offline { // the kernel shows no topology of an offline CPU
			s.addCPU(t, c)
		}
	}
	for _, kind := range []struct {
		dir string
		is  topology.CPUType
	}{{"cpu_core", topology.CPUPerformance}, {"cpu_atom", topology.CPUEfficiency}} {
		if list := s.ids(func(c CPU) bool { return c.Type == kind.is }); list != "" {
			t.file("devices/"+kind.dir+"/cpus", "%s", list)
		}
	}
	if s.NoNUMA {
		t.hugepages("kernel/mm/hugepages", s.Nodes[0].Hugepages)
		return t
	}
	var online []int
	for i, n := range s.Nodes {
		online = append(online, n.ID)
		dir := fmt.Sprintf("devices/system/node/node%d", n.ID)
		t.file(dir+"/cpulist", "%s", s.ids(func(c CPU) bool { return c.Node == n.ID }))
		t.file(dir+"/meminfo", "Node %[1]d MemTotal:       %[2]d kB\nNode %[1]d MemFree:        1024 kB", n.ID, n.Memory>>10)
		t.hugepages(dir+"/hugepages", n.Hugepages)
		t.file(dir+"/distance", "%s", s.distances(n))
		s.addMemory(t, i, n)
	}
	t.file("devices/system/node/online", "%s", contract.NUMANodes(online...))
	return t
}

func (s Spec) distances(n Node) string {
	out := make([]string, 0, len(s.Nodes))
	for i, o := range s.Nodes {
		d := 10 + min(30, 11*max(n.ID-o.ID, o.ID-n.ID))
		if n.Distances != nil {
			d = n.Distances[i]
		}
		out = append(out, fmt.Sprint(d))
	}
	return strings.Join(out, " ")
}

// addMemory adds the evidence for the kind of memory of the node at the index.
func (s Spec) addMemory(t Files, index int, n Node) {
	if n.Tier != 0 {
		var members []int
		for _, o := range s.Nodes {
			if o.Tier == n.Tier {
				members = append(members, o.ID)
			}
		}
		t.file(fmt.Sprintf("devices/virtual/memory_tiering/memory_tier%d/nodelist", n.Tier), "%s", contract.NUMANodes(members...))
	}
	if n.Performance != (topology.MemoryPerformance{}) {
		for class := range 2 {
			dir := fmt.Sprintf("devices/system/node/node%d/access%d/initiators", n.ID, class)
			t.file(dir+"/read_bandwidth", "%d", n.Performance.ReadBandwidth)
			t.file(dir+"/read_latency", "%d", n.Performance.ReadLatency)
		}
	}
	device := fmt.Sprintf("dax%d.0", index)
	if n.DAX == CXL || n.DAX == CXLMapped {
		t.file(fmt.Sprintf("bus/cxl/devices/mem%d/numa_node", index), "0")
	}
	switch n.DAX {
	case CXL:
		t.file(fmt.Sprintf("bus/cxl/devices/dax_region%d/%s/target_node", index, device), "%d", n.ID)
		t.file(fmt.Sprintf("bus/cxl/devices/dax_region%d/dax_region/size", index), "%d", n.Memory)
	case NVD:
		t.file("bus/nd/devices/"+device+"/"+device+"/target_node", "%d", n.ID)
	}
	if n.DAX != "" && n.DAX != CXLMapped {
		t.file("bus/dax/devices/"+device+"/target_node", "%d", n.ID)
	}
}

func (s Spec) addCPU(t Files, c CPU) {
	dir := fmt.Sprintf("devices/system/cpu/cpu%d/", c.ID)
	t.file(dir+"topology/physical_package_id", "%d", c.Socket)
	t.file(dir+"topology/core_id", "%d", c.CoreID)
	t.file(dir+"topology/core_cpus_list", "%s", s.ids(func(o CPU) bool { return o.Core == c.Core }))
	if c.Cluster != NoCluster {
		t.file(dir+"topology/cluster_cpus_list", "%s", s.ids(func(o CPU) bool { return o.Cluster == c.Cluster }))
	}
	if c.Capacity != 0 {
		t.file(dir+"cpu_capacity", "%d", c.Capacity)
	}
	if c.MIDR != 0 {
		t.file(dir+"regs/identification/midr_el1", "%#016x", c.MIDR)
	}
	t.cache(dir+"cache/index0/", 1, "Data", s.ids(func(o CPU) bool { return o.Core == c.Core }))
	t.cache(dir+"cache/index1/", 2, "Unified", s.ids(func(o CPU) bool { return o.Core == c.Core }))
	if c.L3 != NoCache {
		t.cache(dir+"cache/index2/", 3, "Unified", s.ids(func(o CPU) bool { return o.L3 == c.L3 }))
	}
}

func (s Spec) present() string {
	ids := make([]int, 0, len(s.CPUs))
	for _, c := range s.CPUs {
		ids = append(ids, c.ID)
	}
	return contract.CPUs(ids...).String()
}

// ids lists the online CPUs that match.
func (s Spec) ids(match func(CPU) bool) string {
	var ids []int
	for _, c := range s.CPUs {
		if !c.Offline && match(c) {
			ids = append(ids, c.ID)
		}
	}
	return contract.CPUs(ids...).String()
}
