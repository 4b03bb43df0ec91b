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
	"slices"

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
	// Memory is bytes, a multiple of [MemoryStep].
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

// withhold keeps minCPUs CPUs out of the published capacity (I7). CPUs that
// are never published count first; what is missing is taken from the first
// zone, then from the next, so that the shared pool stays in one place. What
// claims already hold cannot be withheld: a step that a claim holds in part, one
// from before WholeCores, gives back only the rest of it.
func withhold(zs []Zone, pool cpuset.CPUSet, minCPUs int, claimed map[string]cpuset.CPUSet) {
	// lost is what the pool can lose to the zone's claims, now and when these
	// are released before the capacity is published again.
	lost := func(z Zone) int {
		// A held CPU that is offline is not in the pool any more.
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
