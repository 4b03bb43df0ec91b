// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"fmt"
	"maps"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// PoolMode selects the CPUs of the shared pool.
type PoolMode string

// Modes of the shared pool.
const (
	PoolDynamic PoolMode = "dynamic"
	PoolFixed   PoolMode = "fixed"
)

// Config is the administrator's configuration of the node.
type Config struct {
	GroupBy Kind
	// ReservedCPUs are never claimed; they stay in the shared pool.
	ReservedCPUs contract.CPUSet
	// ManagedCPUs, unless empty, are the only CPUs that may be claimed.
	ManagedCPUs contract.CPUSet
	// ReservedMemory maps NUMA node id to bytes.
	ReservedMemory map[int]int64
	// ReservedHugepages maps NUMA node id to page size in bytes to pages.
	ReservedHugepages map[int]map[int64]int64
	SharedMode        PoolMode
	// SharedMinCPUs, 1 or more, stay in the shared pool with any claims.
	SharedMinCPUs int
	// MemoryTypes are the offered kinds of memory; nil for all.
	MemoryTypes []topology.MemoryType
	// OfferIsolated offers CPUs of isolcpus like all other CPUs.
	OfferIsolated bool
	// WholeCores offers whole cores only.
	WholeCores bool
}

// pool returns the shared pool of a node without claims.
func (c Config) pool(m topology.Machine) (SharedPool, error) {
	managed := m.Online()
	if !c.ManagedCPUs.IsEmpty() {
		managed = managed.Intersection(c.ManagedCPUs)
	}
	unmanaged, out := m.Online().Difference(managed), c.leftOut(m)
	pool := SharedPool{CPUs: managed.Difference(out), UnmanagedCPUs: unmanaged.Union(out)}
	if c.SharedMode == PoolFixed {
		pool = SharedPool{CPUs: unmanaged.Difference(out), UnmanagedCPUs: out}
	}
	// I7
	if pool.CPUs.Size() < c.SharedMinCPUs {
		return SharedPool{}, fmt.Errorf("sharedPool.minCPUs %d, but with mode %s and managedCPUs %q "+
			"the shared pool has %d CPUs (%s) of those online (%s)%s: %s",
			c.SharedMinCPUs, c.SharedMode, c.ManagedCPUs, pool.CPUs.Size(), pool.CPUs, m.Online(), c.without(m),
			"change managedCPUs, or lower minCPUs")
	}
	for _, n := range m.NUMANodes {
		if n.MemTotal > 0 {
			pool.Mems = pool.Mems.Union(contract.NUMANodes(n.ID))
		}
	}
	return pool, nil
}

// offers reports whether claims may have memory of the node.
func (c Config) offers(n topology.NUMANode) bool {
	return n.MemTotal > 0 && (c.MemoryTypes == nil || slices.Contains(c.MemoryTypes, n.Memory))
}

// check refuses a configuration that does not fit the machine.
func (c Config) check(m topology.Machine) error {
	online := m.Online()
	for _, set := range []struct {
		key  string
		cpus contract.CPUSet
	}{{"reservedCPUs", c.ReservedCPUs}, {"managedCPUs", c.ManagedCPUs}} {
		// An offline CPU is no error of the configuration: the driver must
		// start and serve the online CPUs.
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

// claimable returns the CPUs that claims may hold. With WholeCores it leaves
// out each core with a reserved, unmanaged, left-out or displaced CPU.
func (c Config) claimable(m topology.Machine, displaced contract.CPUSet) contract.CPUSet {
	offered, out := make(map[int]bool, len(m.CPUs)), c.leftOut(m)
	broken := make(map[int]bool)
	for _, cpu := range m.CPUs {
		offered[cpu.ID] = !c.ReservedCPUs.Contains(cpu.ID) && !displaced.Contains(cpu.ID) && !out.Contains(cpu.ID) && c.manages(cpu.ID)
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
	return contract.CPUs(ids...)
}
