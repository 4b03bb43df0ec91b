// SPDX-License-Identifier: Apache-2.0

// Package topology reads the machine: CPUs, cores, caches, sockets, NUMA nodes,
// memory and hugepages. It is the first step of the frontend's flow: zones,
// resourceslices and placement compute from its one value, [Machine], and read
// no file.
//
// Ids are the kernel's and may be sparse. The members identify a group of CPUs,
// never an id that firmware may repeat (core_id) or leave out (a cache's id): a
// core is its list of thread siblings, an L3 its list of sharing CPUs.
//
// A malformed file is an error that names the file, and so is a missing file
// that the kernel always has: a guess would put a CPU into a wrong zone. Caches
// decide no zone: where their files are malformed, contradict each other or
// are missing for some CPUs only, the NUMA node is one L3, with a warning. Facts that some kernels, architectures
// or virtual machines leave out have a fallback:
//
//   - no NUMA nodes: one node 0 with all CPUs and the memory of /proc/meminfo;
//   - no hugepage directory of a node: no hugepages there;
//   - no distances: 10 within a node, 20 between nodes;
//   - no memory tiers, no HMAT, no CXL: the memory of nodes without CPUs is of
//     unknown type and performance;
//   - no core_cpus_list: thread_siblings_list, its older name;
//   - no package id of some CPU (-1): package_cpus_list, or core_siblings_list,
//     its older name, numbered from 0; without these lists, if no CPU has a
//     package id, one socket 0;
//   - no shared_cpu_list of a cache: shared_cpu_map;
//   - no shared cache: the CPUs of a NUMA node on one socket;
//   - no clusters: the core;
//   - no part numbers of all cores: kinds of cores by capacity alone;
//   - no hint of different kinds of cores: all are standard;
//   - no list of present CPUs: none is offline;
//   - no list of isolated CPUs: none is isolated;
//   - no local CPUs of a PCI host bridge: the bridge is local to no node;
//   - no cgroup of all pods with a cpuset: no CPU is kept from pods.
package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Roots are the file systems of the kernel: /sys and /proc.
type Roots struct {
	Sys, Proc fs.FS
	// SysPath and ProcPath are the mount points of Sys and Proc, for messages;
	// empty for a file system without a mount point.
	SysPath, ProcPath string
	// Kubepods is kubelet's cgroup of all pods below the cgroup mount, if it is known. Kubelet's usual cgroups count as well.
	Kubepods string
}

// At returns the file systems /sys and /proc that are mounted at two
// directories.
func At(sys, proc string) Roots {
	return Roots{Sys: os.DirFS(sys), Proc: os.DirFS(proc), SysPath: sys, ProcPath: proc}
}

// Machine is what the frontend read, sorted by id.
type Machine struct {
	// PageSize is the base page size in bytes.
	PageSize  int64
	NUMANodes []NUMANode
	// CPUs are the online CPUs.
	CPUs []CPU
	// Offline are the CPUs that are present and not online.
	Offline contract.CPUSet
	// Warnings say which files contradict each other or are malformed, and what
	// the reader assumed instead.
	Warnings []string
	// Isolated are the online CPUs of the kernel's parameter isolcpus: the kernel
	// balances no load between them, and makes no root partition of them.
	Isolated contract.CPUSet
	// Restricted are the online CPUs that no pod can have: a cpuset above all
	// pods lacks them, or a partition elsewhere on the machine has them.
	Restricted contract.CPUSet
	// ForeignPartitions are the partitions elsewhere.
	ForeignPartitions []ForeignPartition
}

// NUMANode is an online node. It may lack CPUs or memory.
type NUMANode struct {
	ID   int
	CPUs contract.CPUSet
	// MemTotal is in bytes, with hugepages.
	MemTotal int64
	// Hugepages maps page size in bytes to pages of the persistent pool.
	// Surplus pages are not counted: they come and go with their users.
	Hugepages map[int64]int64
	// Distances are to the nodes of the machine, in their order.
	Distances []int
	// PCIeRoots are the names of the PCI host bridges that are local to the
	// node's CPUs, like pci0000:00, sorted.
	PCIeRoots []string
	Memory    MemoryType
	// Performance is what firmware reports about the node's memory.
	Performance MemoryPerformance
}

// CPUType is the kind of core that a CPU belongs to.
type CPUType string

// Kinds of cores. CPUs are standard where the kernel shows no kinds.
const (
	CPUStandard    CPUType = "standard"
	CPUPerformance CPUType = "performance"
	CPUEfficiency  CPUType = "efficiency"
)

// CPU is an online hardware thread. Core, Cluster and L3 are the lowest CPU of
// the group.
type CPU struct {
	ID, Core, Cluster, L3, Node, Socket int
	Type                                CPUType
}

// attempts bounds the readings of a machine with CPUs that go or come
// meanwhile.
const attempts = 8

// Discover reads the machine. pageSize is the base page size in bytes.
func Discover(roots Roots, pageSize int64) (Machine, error) {
	return discover(roots, pageSize, Machine{})
}

// Reread reads the machine again. It takes sockets, cores, clusters and L3s of m if the same CPUs are online in the same NUMA nodes as in
// m: the kernel does not change them then, and their files are most of all files. If m has warnings, Reread reads these files too, because
// they may have been mended. Kinds of cores are read each time, because capacities can change.
func (m Machine) Reread(roots Roots) (Machine, error) { return discover(roots, m.PageSize, m) }

// discover reads the machine. before is an earlier reading, or has no CPU.
func discover(roots Roots, pageSize int64, before Machine) (Machine, error) {
	if pageSize < 1<<10 || pageSize&(pageSize-1) != 0 {
		return Machine{}, fmt.Errorf("base page size %d is not a power of two of 1024 or more", pageSize)
	}
	sys, proc := source{roots.Sys, "sysfs", roots.SysPath}, source{roots.Proc, "procfs", roots.ProcPath}
	online, err := sys.cpus(cpuDir + "/online")
	if err != nil {
		return Machine{}, err
	}
	for range attempts {
		m, err := read(sys, proc, roots.Kubepods, online, before)
		m.PageSize = pageSize
		// A CPU that goes offline loses its files: err may be about such a CPU.
		now, errNow := sys.cpus(cpuDir + "/online")
		if errNow != nil {
			return Machine{}, errNow
		}
		if now == online {
			return m, err
		}
		online = now
	}
	return Machine{}, fmt.Errorf("%s: CPUs go or come while they are read, at each of %d attempts", sys.at(cpuDir+"/online"), attempts)
}

// read reads the machine with these online CPUs. before is an earlier reading, or has no CPU.
func read(sys, proc source, kubepods string, online contract.CPUSet, before Machine) (Machine, error) {
	if online.IsEmpty() {
		return Machine{}, fmt.Errorf("%s names no CPU", sys.at(cpuDir+"/online"))
	}
	nodes, err := readNodes(sys, proc, online)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{NUMANodes: nodes}
	if before.stillHolds(online, nodes) {
		m.CPUs = slices.Clone(before.CPUs)
	} else if err := m.readHardware(sys, online); err != nil {
		return Machine{}, err
	}
	// Kernels without CPU hotplug need not have the file.
	present, err := sys.cpus(cpuDir + "/present")
	if err != nil && !missing(err) {
		return Machine{}, err
	}
	m.Offline = present.Difference(online)
	isolated, err := readIsolated(sys)
	if err != nil {
		return Machine{}, err
	}
	m.Isolated = isolated.Intersection(online)
	if m.Restricted, m.ForeignPartitions, err = readRestricted(sys, kubepods, online); err != nil {
		return Machine{}, err
	}
	m.Warnings = append(m.Warnings, m.readPCIeRoots(sys)...)
	if err := m.readTypes(sys); err != nil {
		return Machine{}, err
	}
	return m, nil
}

// readHardware reads the online CPUs with their sockets, cores, clusters, NUMA nodes and L3s, and sets the warnings about caches.
func (m *Machine) readHardware(sys source, online contract.CPUSet) (err error) {
	if m.CPUs, err = readCPUs(sys, online); err != nil {
		return err
	}
	if err := m.assignNodes(); err != nil {
		return err
	}
	m.Warnings = m.readCaches(sys)
	return nil
}

// stillHolds reports whether the CPUs of m are those of a machine with these online CPUs and NUMA nodes: m has no warnings, and the
// same CPUs are online in the same nodes.
func (m Machine) stillHolds(online contract.CPUSet, nodes []NUMANode) bool {
	sameCPUs := func(a, b NUMANode) bool { return a.ID == b.ID && a.CPUs == b.CPUs }
	return len(m.Warnings) == 0 && m.Online() == online && slices.EqualFunc(m.NUMANodes, nodes, sameCPUs)
}

// Online returns the ids of the online CPUs.
func (m Machine) Online() contract.CPUSet {
	ids := make([]int, 0, len(m.CPUs))
	for _, c := range m.CPUs {
		ids = append(ids, c.ID)
	}
	return contract.CPUs(ids...)
}

// Node returns the node with the id.
func (m Machine) Node(id int) (NUMANode, bool) {
	i, found := slices.BinarySearchFunc(m.NUMANodes, id, func(n NUMANode, id int) int { return cmp.Compare(n.ID, id) })
	if !found {
		return NUMANode{}, false
	}
	return m.NUMANodes[i], true
}

// assignNodes sets the node of each CPU. Contradictions are errors, because
// zones are built from nodes.
func (m Machine) assignNodes() error {
	nodeOf := make(map[int]int, len(m.CPUs))
	for _, n := range m.NUMANodes {
		for _, id := range n.CPUs.List() {
			if other, taken := nodeOf[id]; taken {
				return fmt.Errorf("CPU %d is in the cpulist of NUMA nodes %d and %d: a CPU of several nodes (numa=fake) is not supported",
					id, other, n.ID)
			}
			nodeOf[id] = n.ID
		}
	}
	first := make(map[int]CPU, len(m.CPUs))
	for i := range m.CPUs {
		c := &m.CPUs[i]
		node, found := nodeOf[c.ID]
		if !found {
			return fmt.Errorf("CPU %d is online but in the cpulist of no NUMA node", c.ID)
		}
		c.Node = node
		sibling, seen := first[c.Core]
		if !seen {
			first[c.Core] = *c
			continue
		}
		if sibling.Socket != c.Socket {
			return fmt.Errorf("CPUs %d and %d are siblings of one core but on sockets %d and %d",
				sibling.ID, c.ID, sibling.Socket, c.Socket)
		}
		if sibling.Node != c.Node {
			return fmt.Errorf("CPUs %d and %d are siblings of one core but on NUMA nodes %d and %d",
				sibling.ID, c.ID, sibling.Node, c.Node)
		}
	}
	return nil
}
