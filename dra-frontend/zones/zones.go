// SPDX-License-Identifier: Apache-2.0

// Package zones cuts the machine into pools of capacity: what of each NUMA
// node, socket or the machine may be claimed once the node's own reservations
// are taken out. It stands between topology (what there is) and resourceslices
// (what is published); placement later picks CPUs of a zone.
//
// The shared pool is what everything without exclusive CPUs runs on. Dynamic, it
// is all managed CPUs that no claim holds, reserved ones included; unmanaged
// CPUs are someone else's and stay untouched. Fixed, it is exactly the
// unmanaged CPUs, for ever. It never becomes empty by scheduling (I7): the
// published capacity is so small that any set of claims leaves SharedMinCPUs.
package zones

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"k8s.io/utils/cpuset"
)

// Kind is what a zone stands for; it is also the value of Config.GroupBy.
type Kind string

// Kinds of zones.
const (
	NUMANode Kind = "numanode"
	Socket   Kind = "socket"
	Machine  Kind = "machine"
)

// PoolMode is how the shared pool is made.
type PoolMode string

// Modes of the shared pool.
const (
	PoolDynamic PoolMode = "dynamic"
	PoolFixed   PoolMode = "fixed"
)

// Config is what the administrator wants of the node.
type Config struct {
	GroupBy Kind
	// ReservedCPUs are never claimed; they stay in the shared pool.
	ReservedCPUs cpuset.CPUSet
	// ManagedCPUs, unless empty, are the only ones that may be claimed.
	ManagedCPUs cpuset.CPUSet
	// ReservedMemory is NUMA node id to bytes.
	ReservedMemory map[int]int64
	// ReservedHugepages is NUMA node id to page size in bytes to pages.
	ReservedHugepages map[int]map[int64]int64
	// SharedMode is how the shared pool is made.
	SharedMode PoolMode
	// SharedMinCPUs stay in the shared pool whatever is claimed; 1 or more.
	SharedMinCPUs int
	// WholeCores offers whole cores only.
	WholeCores bool
}

// Zone is a pool of capacity, one device.
type Zone struct {
	Name string
	Kind Kind
	// ID is the kernel's id of the NUMA node or socket, 0 for the machine.
	ID int
	// CPUs may be claimed: online, managed, not reserved.
	CPUs cpuset.CPUSet
	// Mems are the NUMA nodes that hold the zone's memory.
	Mems []int
	// CPUCapacity is published: at most the number of CPUs, less what the
	// shared pool needs, a multiple of CPUStep.
	CPUCapacity, CPUStep int
	// Memory is bytes, a multiple of the page size.
	Memory int64
	// Hugepages is page size in bytes to pages; sizes without pages are absent.
	Hugepages map[int64]int64

	Hardware
}

// Empty tells whether the zone has nothing to offer.
func (z Zone) Empty() bool { return z.CPUCapacity == 0 && z.Memory == 0 && len(z.Hugepages) == 0 }

// Pool is what containers without exclusive CPUs run on while no claim holds
// any: the ledger takes claimed CPUs off it.
type Pool struct {
	CPUs cpuset.CPUSet
	// Others are online CPUs that belong to someone else: what is pinned to
	// them is left alone.
	Others cpuset.CPUSet
	// Mems are the NUMA nodes with memory.
	Mems []int
}

// Live is what claims hold that were prepared with another configuration of
// the machine, or of a machine with other CPUs.
type Live struct {
	// Held are the CPUs of all claims, Displaced those of results on devices
	// that are no zone any more.
	Held, Displaced cpuset.CPUSet
	// Claimed are the CPUs that results hold on devices that still are a zone,
	// by its name; some may be offline now.
	Claimed map[string]cpuset.CPUSet
}

// Cut is a machine divided as a configuration says that fits it.
type Cut struct {
	Pool Pool

	machine  topology.Machine
	config   Config
	segments []segment
}

// NewCut checks the configuration against the machine.
func NewCut(m topology.Machine, c Config) (Cut, error) {
	if err := c.check(m); err != nil {
		return Cut{}, err
	}
	pool, err := c.pool(m)
	if err != nil {
		return Cut{}, err
	}
	segments, err := group(m, c.GroupBy)
	return Cut{Pool: pool, machine: m, config: c, segments: segments}, err
}

// Compute cuts m into zones, ordered as nodes and sockets are by id. Zones
// with nothing to offer are left out.
func Compute(m topology.Machine, c Config) ([]Zone, Pool, error) {
	cut, err := NewCut(m, c)
	if err != nil {
		return nil, Pool{}, err
	}
	return cut.Offer(Live{}), cut.Pool, nil
}

// Offer returns the zones of a node with claims. As long as the claims fit the
// configuration the result does not depend on them; what does not fit is left
// out of the capacities, so that the scheduler gives nothing away twice (I1)
// and never more than can be prepared (I2) or than the shared pool can spare
// (I7).
func (cut Cut) Offer(live Live) []Zone {
	c := cut.config
	claimable := c.claimable(cut.machine, live.Displaced)
	zs := make([]Zone, 0, len(cut.segments))
	for _, s := range cut.segments {
		zs = append(zs, s.zone(cut.machine, c, claimable, live.Held))
	}
	if c.SharedMode != PoolFixed {
		withhold(zs, cut.Pool.CPUs.Difference(live.Displaced), c.SharedMinCPUs, live.Claimed)
	}
	return slices.DeleteFunc(zs, Zone.Empty)
}

// pool returns the shared pool while there is no claim.
func (c Config) pool(m topology.Machine) (Pool, error) {
	managed := m.Online()
	if !c.ManagedCPUs.IsEmpty() {
		managed = managed.Intersection(c.ManagedCPUs)
	}
	unmanaged := m.Online().Difference(managed)
	pool := Pool{CPUs: managed, Others: unmanaged}
	if c.SharedMode == PoolFixed {
		pool = Pool{CPUs: unmanaged}
	}
	// I7
	if pool.CPUs.Size() < c.SharedMinCPUs {
		return Pool{}, fmt.Errorf("sharedPool.minCPUs %d, but with mode %s and managedCPUs %q the shared pool has %d CPUs (%s) of those online (%s): %s",
			c.SharedMinCPUs, c.SharedMode, c.ManagedCPUs, pool.CPUs.Size(), pool.CPUs, m.Online(), "change managedCPUs, or lower minCPUs")
	}
	for _, n := range m.NUMANodes {
		if n.MemTotal > 0 {
			pool.Mems = append(pool.Mems, n.ID)
		}
	}
	return pool, nil
}

// withhold keeps minCPUs CPUs out of the published capacity (I7). CPUs that
// are never published count first; what is missing is taken from the first
// zone, then from the next, so that the shared pool stays in one place. What
// claims already hold cannot be withheld.
func withhold(zs []Zone, pool cpuset.CPUSet, minCPUs int, claimed map[string]cpuset.CPUSet) {
	missing := minCPUs - pool.Size()
	for _, z := range zs {
		// A held CPU that is offline is not in the pool any more.
		missing += max(z.CPUCapacity, claimed[z.Name].Intersection(pool).Size())
	}
	for i := range zs {
		for z := &zs[i]; missing > 0 && z.CPUCapacity > claimed[z.Name].Size(); missing -= z.CPUStep {
			z.CPUCapacity -= z.CPUStep
		}
	}
}

// check refuses a configuration that does not fit the machine.
func (c Config) check(m topology.Machine) error {
	online := m.Online()
	for _, set := range []struct {
		key  string
		cpus cpuset.CPUSet
	}{{"reservedCPUs", c.ReservedCPUs}, {"managedCPUs", c.ManagedCPUs}} {
		// A CPU that went offline is no error of the configuration: the driver
		// must come up and serve those that are left.
		if absent := set.cpus.Difference(online.Union(m.Offline)); !absent.IsEmpty() {
			return fmt.Errorf("%s %s: this machine has no CPUs %s (online are %s)", set.key, set.cpus, absent, online)
		}
	}
	if c.SharedMode != PoolDynamic && c.SharedMode != PoolFixed {
		return fmt.Errorf("sharedPool.mode %q: want %q or %q", c.SharedMode, PoolDynamic, PoolFixed)
	}
	if c.SharedMinCPUs < 1 || c.SharedMinCPUs > online.Size() {
		return fmt.Errorf("sharedPool.minCPUs %d: want 1 to %d, the number of online CPUs", c.SharedMinCPUs, online.Size())
	}
	for _, id := range slices.Sorted(maps.Keys(c.ReservedMemory)) {
		if _, found := m.Node(id); !found {
			return fmt.Errorf("reservedMemory: there is no NUMA node %d", id)
		}
		if c.ReservedMemory[id] < 0 {
			return fmt.Errorf("reservedMemory of NUMA node %d: %d bytes", id, c.ReservedMemory[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.ReservedHugepages)) {
		if _, found := m.Node(id); !found {
			return fmt.Errorf("reservedHugepages: there is no NUMA node %d", id)
		}
		for size, pages := range c.ReservedHugepages[id] {
			if pages < 0 {
				return fmt.Errorf("reservedHugepages of NUMA node %d: %d pages of %d bytes", id, pages, size)
			}
		}
	}
	return nil
}

// claimable returns the CPUs that claims may hold. With WholeCores these are
// whole cores: one with a reserved, unmanaged or displaced sibling is not.
func (c Config) claimable(m topology.Machine, displaced cpuset.CPUSet) cpuset.CPUSet {
	offered := make(map[int]bool, len(m.CPUs))
	broken := make(map[int]bool)
	for _, cpu := range m.CPUs {
		offered[cpu.ID] = !c.ReservedCPUs.Contains(cpu.ID) && !displaced.Contains(cpu.ID) && (c.ManagedCPUs.IsEmpty() || c.ManagedCPUs.Contains(cpu.ID))
		if !offered[cpu.ID] {
			broken[cpu.Core] = true
		}
	}
	var ids []int
	for _, cpu := range m.CPUs {
		if offered[cpu.ID] && !(c.WholeCores && broken[cpu.Core]) {
			ids = append(ids, cpu.ID)
		}
	}
	return cpuset.New(ids...)
}

// segment is a set of CPUs and NUMA nodes that becomes a zone.
type segment struct {
	name  string
	kind  Kind
	id    int
	cpus  []topology.CPU
	nodes []topology.NUMANode
}

func group(m topology.Machine, by Kind) ([]segment, error) {
	switch by {
	case NUMANode:
		return groupByNode(m, func(topology.NUMANode) bool { return true }), nil
	case Socket:
		return groupBySocket(m)
	case Machine:
		return []segment{{name: "machine", kind: Machine, cpus: m.CPUs, nodes: m.NUMANodes}}, nil
	}
	return nil, fmt.Errorf("groupBy %q: want %q, %q or %q", by, NUMANode, Socket, Machine)
}

func groupByNode(m topology.Machine, wanted func(topology.NUMANode) bool) []segment {
	var out []segment
	for _, n := range m.NUMANodes {
		if !wanted(n) {
			continue
		}
		s := segment{name: "numa-" + strconv.Itoa(n.ID), kind: NUMANode, id: n.ID, nodes: []topology.NUMANode{n}}
		for _, c := range m.CPUs {
			if c.Node == n.ID {
				s.cpus = append(s.cpus, c)
			}
		}
		out = append(out, s)
	}
	return out
}

// groupBySocket gives each socket the nodes of its CPUs. A memory-only node
// belongs to no socket that the kernel could tell: it stays a zone of its own.
func groupBySocket(m topology.Machine) ([]segment, error) {
	sockets := make(map[int]*segment)
	socketOf := make(map[int]int)
	for _, c := range m.CPUs {
		s, seen := sockets[c.Socket]
		if !seen {
			s = &segment{name: "socket-" + strconv.Itoa(c.Socket), kind: Socket, id: c.Socket}
			sockets[c.Socket] = s
		}
		s.cpus = append(s.cpus, c)
		other, seen := socketOf[c.Node]
		if seen && other != c.Socket {
			return nil, fmt.Errorf("groupBy %s: NUMA node %d spans sockets %d and %d, its memory cannot be divided between them; use %s or %s",
				Socket, c.Node, other, c.Socket, NUMANode, Machine)
		}
		socketOf[c.Node] = c.Socket
	}
	for _, n := range m.NUMANodes {
		if socket, found := socketOf[n.ID]; found {
			sockets[socket].nodes = append(sockets[socket].nodes, n)
		}
	}
	var out []segment
	for _, id := range slices.Sorted(maps.Keys(sockets)) {
		out = append(out, *sockets[id])
	}
	return append(out, groupByNode(m, func(n topology.NUMANode) bool { return n.CPUs.IsEmpty() })...), nil
}
