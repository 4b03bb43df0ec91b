// SPDX-License-Identifier: Apache-2.0

// Package zones divides the machine into zones: the capacity of each NUMA node,
// of each socket or of the machine that may be claimed, without the node's own
// reservations. It stands between topology (the machine) and resourceslices
// (the published devices); placement later picks CPUs of a zone.
//
// The shared pool is for all containers without claimed CPUs. In dynamic mode
// it is all managed CPUs that no claim takes out of it, with the reserved CPUs; unmanaged
// CPUs are another program's and stay untouched. In fixed mode it is always
// the online CPUs that managedCPUs lacks, without the left-out CPUs. Scheduling never empties the pool
// (I7): the published capacity is so small that any set of claims leaves
// SharedMinCPUs.
package zones

import (
	"reflect"

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
	Mems contract.NUMANodeSet
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

// SharedPool is the shared pool of a node without claims. Package nodestate subtracts
// the claimed CPUs that are no partition CPUs.
type SharedPool struct {
	CPUs contract.CPUSet
	// UnmanagedCPUs are online: containers that are pinned to them
	// are left alone.
	UnmanagedCPUs contract.CPUSet
	// Mems are the NUMA nodes with memory.
	Mems contract.NUMANodeSet
}

// Division is a machine as a configuration divides it.
type Division struct {
	Machine topology.Machine
	// Zones are ordered by the ids of nodes and sockets. Zones with nothing to
	// offer are left out.
	Zones []Zone
	Pool  SharedPool

	config   Config
	segments []segment
	// free are the segments' zones without claims, before CPUs are withheld. Offers
	// share the maps and slices of its zones, but for Hugepages: do not change them.
	free []Zone
}

// Divide divides the machine, which the configuration must fit.
func Divide(m topology.Machine, c Config) (Division, error) {
	if err := c.check(m); err != nil {
		return Division{}, err
	}
	pool, err := c.pool(m)
	if err != nil {
		return Division{}, err
	}
	segments, err := group(m, c.GroupBy)
	if err != nil {
		return Division{}, err
	}
	i := Division{Machine: m, Pool: pool, config: c, segments: segments}
	i.free = i.zonesOf(contract.CPUSet{}, contract.CPUSet{})
	i.Zones = i.Offer(nil)
	return i, nil
}

// Names returns the zones' names.
func (i Division) Names() []string {
	names := make([]string, len(i.Zones))
	for k, z := range i.Zones {
		names[k] = z.Name
	}
	return names
}

// Equal reports whether both offer the same zones and shared pool.
func (i Division) Equal(other Division) bool {
	return reflect.DeepEqual(i.Zones, other.Zones) && reflect.DeepEqual(i.Pool, other.Pool)
}
