// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"slices"
	"strconv"
	"strings"
)

// MemoryType is the kind of memory of a NUMA node.
type MemoryType string

// Kinds of memory. Sysfs has no word for them, so the first evidence that
// exists decides:
//
//  1. A node with CPUs has DRAM, as the kernel itself assumes (so the HBM of a
//     machine without other memory is dram, too).
//  2. The target of a DAX device on the CXL bus is CXL. The target of a DAX
//     device on the NVDIMM bus is persistent memory, which is unknown.
//  3. Bandwidth and latency that firmware reports (HMAT), compared with the
//     nodes with CPUs: [MemoryPerformance.against].
//  4. The memory tier: a node with a faster tier than all nodes with CPUs has
//     HBM.
//
// Slow memory is CXL only on a machine that has a CXL memory device: an
// accelerator's memory is slow for CPUs, too.
const (
	MemoryDRAM    MemoryType = "dram"
	MemoryHBM     MemoryType = "hbm"
	MemoryCXL     MemoryType = "cxl"
	MemoryUnknown MemoryType = "unknown"
)

// MemoryPerformance is what firmware reports for reads by the nearest CPUs; 0
// for no report.
type MemoryPerformance struct {
	// ReadBandwidth is in MB/s.
	ReadBandwidth int64
	// ReadLatency is in nanoseconds.
	ReadLatency int64
}

const (
	tierDir = "devices/virtual/memory_tiering"
	cxlDir  = "bus/cxl/devices"
	nvdDir  = "bus/nd/devices"
)

// speed is a node's memory compared with the memory of nodes with CPUs.
type speed int

const (
	alike speed = iota
	faster
	slower
)

// memories is the evidence about all nodes.
type memories struct {
	tiers                   map[int]int64
	cxlTargets, pmemTargets map[int]bool
	cxlDevice               bool
}

// readMemoryTypes sets the nodes' types of memory and performance.
func readMemoryTypes(sys source, nodes []NUMANode) error {
	var found memories
	var err error
	if found.tiers, err = readTiers(sys); err != nil {
		return err
	}
	if found.cxlTargets, err = readTargets(sys, cxlDir, "dax_region"); err != nil {
		return err
	}
	if found.pmemTargets, err = readTargets(sys, nvdDir, "dax"); err != nil {
		return err
	}
	devices, err := sys.names(cxlDir)
	if err != nil {
		return err
	}
	found.cxlDevice = slices.ContainsFunc(devices, func(name string) bool { return numbered(name, "mem") })
	for i := range nodes {
		if nodes[i].Performance, err = readPerformance(sys, nodes[i].ID); err != nil {
			return err
		}
	}
	for i := range nodes {
		nodes[i].Memory = found.typeOf(nodes[i], nodes)
	}
	return nil
}

func (m memories) typeOf(n NUMANode, nodes []NUMANode) MemoryType {
	switch {
	case n.MemTotal == 0:
		return MemoryUnknown
	case !n.CPUs.IsEmpty():
		return MemoryDRAM
	case m.cxlTargets[n.ID]:
		return MemoryCXL
	case m.pmemTargets[n.ID]:
		return MemoryUnknown
	}
	var dram []NUMANode
	for _, other := range nodes {
		if !other.CPUs.IsEmpty() && other.MemTotal > 0 {
			dram = append(dram, other)
		}
	}
	s := n.Performance.against(dram)
	if s == alike {
		s = m.tierAgainst(n.ID, dram)
	}
	switch {
	case s == faster:
		return MemoryHBM
	case s == slower && m.cxlDevice:
		return MemoryCXL
	}
	return MemoryUnknown
}

// against compares p with the best values of the DRAM. Faster has at least 1.5
// times the bandwidth at no more than 1.5 times the latency; slower has more
// latency than that without more bandwidth. HBM has several times the bandwidth
// of DRAM, CXL about twice its latency.
func (p MemoryPerformance) against(dram []NUMANode) speed {
	var best MemoryPerformance
	for _, n := range dram {
		q := n.Performance
		best.ReadBandwidth = max(best.ReadBandwidth, q.ReadBandwidth)
		if best.ReadLatency == 0 || q.ReadLatency > 0 && q.ReadLatency < best.ReadLatency {
			best.ReadLatency = q.ReadLatency
		}
	}
	if p.ReadBandwidth == 0 || p.ReadLatency == 0 || best.ReadBandwidth == 0 || best.ReadLatency == 0 {
		return alike
	}
	late := 2*p.ReadLatency > 3*best.ReadLatency
	switch {
	case 2*p.ReadBandwidth >= 3*best.ReadBandwidth && !late:
		return faster
	case p.ReadBandwidth <= best.ReadBandwidth && late:
		return slower
	}
	return alike
}

func (m memories) tierAgainst(node int, dram []NUMANode) speed {
	tier, known := m.tiers[node]
	var tiers []int64
	for _, n := range dram {
		if t, found := m.tiers[n.ID]; found {
			tiers = append(tiers, t)
		}
	}
	switch {
	case !known || len(tiers) == 0:
		return alike
	case tier < slices.Min(tiers):
		return faster
	case tier > slices.Max(tiers):
		return slower
	}
	return alike
}

// readTiers returns the tier of each node; a lower tier is faster.
func readTiers(sys source) (map[int]int64, error) {
	names, err := sys.names(tierDir)
	if err != nil {
		return nil, err
	}
	tiers := make(map[int]int64)
	for _, name := range names {
		digits, prefixed := strings.CutPrefix(name, "memory_tier")
		tier, err := parseNumber(digits, 0)
		if err != nil || !prefixed {
			continue
		}
		nodes, err := sys.nodes(tierDir + "/" + name + "/nodelist")
		if err != nil && !missing(err) { // tiers come and go with memory
			return nil, err
		}
		for _, n := range nodes.List() {
			tiers[n] = tier
		}
	}
	return tiers, nil
}

// readTargets returns the target nodes of DAX devices below the bus's devices
// of the kind, a prefix of their names.
func readTargets(sys source, bus, kind string) (map[int]bool, error) {
	targets := make(map[int]bool)
	parents, err := sys.names(bus)
	if err != nil {
		return nil, err
	}
	for _, parent := range parents {
		if !numbered(parent, kind) {
			continue
		}
		devices, err := sys.names(bus + "/" + parent)
		if err != nil {
			return nil, err
		}
		for _, device := range devices {
			if !numbered(device, "dax") {
				continue
			}
			node, err := sys.number(bus+"/"+parent+"/"+device+"/target_node", -1)
			if missing(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			targets[int(node)] = true
		}
	}
	return targets, nil
}

// numbered reports whether the name is the prefix and a digit, with anything
// after them, as dax0.1.
func numbered(name, prefix string) bool {
	rest, found := strings.CutPrefix(name, prefix)
	return found && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// readPerformance prefers access class 1, which is about CPUs. Class 0 can be
// about an accelerator, but older kernels have no other class.
func readPerformance(sys source, node int) (MemoryPerformance, error) {
	for _, class := range []string{"access1", "access0"} {
		dir := nodeDir + "/node" + strconv.Itoa(node) + "/" + class + "/initiators/"
		bandwidth, err := sys.number(dir+"read_bandwidth", 0)
		if err != nil && !missing(err) {
			return MemoryPerformance{}, err
		}
		latency, err := sys.number(dir+"read_latency", 0)
		if err != nil && !missing(err) {
			return MemoryPerformance{}, err
		}
		if p := (MemoryPerformance{ReadBandwidth: bandwidth, ReadLatency: latency}); p != (MemoryPerformance{}) {
			return p, nil
		}
	}
	return MemoryPerformance{}, nil
}

// NearestCPUNode returns the node with CPUs that is nearest to n, the lowest id
// of several, and its distance; false if no node has CPUs.
func (m Machine) NearestCPUNode(n NUMANode) (id, distance int, found bool) {
	for i, other := range m.NUMANodes {
		if !other.CPUs.IsEmpty() && (!found || n.Distances[i] < distance) {
			id, distance, found = other.ID, n.Distances[i], true
		}
	}
	return id, distance, found
}
