// SPDX-License-Identifier: Apache-2.0

// Package zones divides the machine into zones: the capacity of each NUMA node,
// of each socket or of the machine that may be claimed, without the node's own
// reservations. It stands between topology (the machine) and resourceslices
// (the published devices); placement later picks CPUs of a zone.
//
// The shared pool is for all containers without claimed CPUs. In dynamic mode
// it is all managed CPUs that no claim holds, with the reserved CPUs; unmanaged
// CPUs are another program's and stay untouched. In fixed mode it is exactly
// the CPUs that managedCPUs lacks, always. Scheduling never empties the pool
// (I7): the published capacity is so small that any set of claims leaves
// SharedMinCPUs.
package zones

import (
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Kind is what a zone stands for: a NUMA node, a socket or the machine.
type Kind string

// Kinds of zones.
const (
	NUMANode Kind = "numanode"
	Socket   Kind = "socket"
	Machine  Kind = "machine"
)

// Zone is the capacity of one device.
type Zone struct {
	Name string
	Kind Kind
	// ID is the kernel's id of the NUMA node or socket, 0 for the machine.
	ID int
	// CPUs may be claimed: online, managed, not reserved, not left out.
	CPUs contract.CPUSet
	// Mems are the NUMA nodes with the zone's memory.
	Mems contract.NodeSet
	// CPUCapacity is the published number of CPUs, a multiple of CPUStep: at
	// most the size of CPUs, less what the shared pool needs.
	CPUCapacity, CPUStep int
	// Memory is in bytes, a multiple of [MemoryStep].
	Memory int64
	// Hugepages maps page size in bytes to pages; sizes without pages are
	// absent.
	Hugepages map[int64]int64

	Hardware
}

// Empty reports whether the zone has nothing to offer.
func (z Zone) Empty() bool { return z.CPUCapacity == 0 && z.Memory == 0 && len(z.Hugepages) == 0 }

// Pool is the shared pool of a node without claims. The ledger subtracts
// claimed CPUs.
type Pool struct {
	CPUs contract.CPUSet
	// UnmanagedCPUs are online: containers that are pinned to them
	// are left alone.
	UnmanagedCPUs contract.CPUSet
	// Mems are the NUMA nodes with memory.
	Mems contract.NodeSet
}

// Live is what the node's claims hold. Claims may have been prepared with
// another configuration, or on a machine with other CPUs.
type Live struct {
	// Held are the CPUs of all claims. Displaced are the CPUs of results on
	// devices that are no zones.
	Held, Displaced contract.CPUSet
	// Claimed maps a zone's name to the CPUs of results on its device. Some may
	// be offline.
	Claimed map[string]contract.CPUSet
}

// Cut is a machine divided by a configuration that fits it.
type Cut struct {
	Pool Pool

	machine  topology.Machine
	config   Config
	segments []segment
}

// NewCut divides the machine, which the configuration must fit.
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

// Compute returns the zones of m, ordered by the ids of nodes and sockets, and
// the shared pool. Zones with nothing to offer are left out.
func Compute(m topology.Machine, c Config) ([]Zone, Pool, error) {
	cut, err := NewCut(m, c)
	if err != nil {
		return nil, Pool{}, err
	}
	return cut.Offer(Live{}), cut.Pool, nil
}

// Offer returns the zones of a node with claims. While the claims fit the
// configuration, the result does not depend on them. CPUs of claims that do not
// fit are subtracted from the capacities, so that the scheduler gives no CPU
// twice (I1), never more than can be prepared (I2) and never more than the
// shared pool can spare (I7).
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

// withhold keeps minCPUs CPUs out of the published capacity (I7). CPUs that are
// never published count first; missing CPUs are taken from the first zone, then
// from the next, so that the shared pool stays in one place. CPUs that claims
// hold cannot be withheld: if a claim from before WholeCores holds a part of a
// step, only the rest of the step comes back.
func withhold(zs []Zone, pool contract.CPUSet, minCPUs int, claimed map[string]contract.CPUSet) {
	// lost is how many CPUs the pool can lose to the zone's claims, at present
	// and when these are released before the capacity is published again.
	lost := func(z Zone) int {
		// A held CPU that is offline is not in the pool.
		return max(z.CPUCapacity, claimed[z.Name].Intersection(pool).Size())
	}
	missing := minCPUs - pool.Size()
	for _, z := range zs {
		missing += lost(z)
	}
	for i := range zs {
		for z := &zs[i]; missing > 0 && z.CPUCapacity > claimed[z.Name].Size(); {
			before := lost(*z)
			z.CPUCapacity -= z.CPUStep
			missing -= before - lost(*z)
		}
	}
}
