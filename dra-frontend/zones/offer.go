// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"maps"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// Displaced returns the claims with a result on a device that is not offered,
// because another configuration divided the machine. Such claims keep their
// CPUs and memory, which the scheduler does not subtract from offered devices.
func (i Division) Displaced(claims []contract.ClaimRecord) []contract.ClaimRecord {
	return slices.DeleteFunc(slices.Clone(claims), func(c contract.ClaimRecord) bool {
		return !slices.ContainsFunc(c.Results, func(r contract.ResultRecord) bool { return !i.has(r.Device) })
	})
}

func (i Division) has(device string) bool {
	return slices.ContainsFunc(i.Zones, func(z Zone) bool { return z.Name == device })
}

// Offer returns the zones of a node with claims. The claims may have been
// prepared with another configuration, or on a machine with other CPUs. While the
// claims fit the configuration, the result does not depend on them. CPUs and
// memory of claims that do not fit are subtracted from the capacities, so that the
// scheduler gives no CPU twice (I1), gives no more than can be prepared (I2) and
// takes no more than the shared pool can spare (I7). A capacity of which claims hold more
// than the zone has is left out.
func (i Division) Offer(claims []contract.ClaimRecord) []Zone {
	held := i.held(claims)
	var zs []Zone
	// The offer is computed after each change of a claim. Claimed CPUs change the zones
	// only if they are displaced, or if claims get whole cores.
	if i.config.WholeCores || !held.displacedCPUs.IsEmpty() {
		zs = i.zonesOf(nodestate.ClaimedCPUs(claims), held.displacedCPUs)
	} else {
		zs = slices.Clone(i.free)
		for k := range zs {
			zs[k].Hugepages = maps.Clone(zs[k].Hugepages)
		}
	}
	if i.config.SharedMode != PoolFixed {
		withhold(zs, i.Pool.CPUs.Difference(held.displacedCPUs), i.config.SharedMinCPUs, held.byZone)
	}
	for k := range zs {
		for _, r := range held.displacedResults {
			takeMemory(&zs[k], r)
		}
	}
	for k := range zs {
		held.dropShort(&zs[k])
	}
	return slices.DeleteFunc(zs, Zone.Empty)
}

// zonesOf returns the zones of all segments. claimed are the CPUs of all claims;
// displaced are the CPUs of the claims' devices that are no zones.
func (i Division) zonesOf(claimed, displaced contract.CPUSet) []Zone {
	claimable := i.config.claimable(i.Machine, displaced)
	zs := make([]Zone, 0, len(i.segments))
	for _, s := range i.segments {
		zs = append(zs, s.zone(i.Machine, i.config, claimable, claimed))
	}
	return zs
}

// holdings are what claims hold.
type holdings struct {
	// byZone maps a zone's name to the CPUs of results on its device. Some may be
	// offline.
	byZone map[string]contract.CPUSet
	// memoryByZone maps a zone's name to the bytes of results on its device, by page size as in [HeldMemory].
	memoryByZone map[string]map[int64]int64
	// displacedResults are the results on devices that are no zones, displacedCPUs are
	// their CPUs.
	displacedResults []contract.ResultRecord
	displacedCPUs    contract.CPUSet
}

func (i Division) held(claims []contract.ClaimRecord) holdings {
	held := holdings{byZone: make(map[string]contract.CPUSet), memoryByZone: make(map[string]map[int64]int64)}
	for _, c := range claims {
		for _, r := range c.Results {
			if i.has(r.Device) {
				held.byZone[r.Device] = held.byZone[r.Device].Union(r.Decision.CPUs)
				if held.memoryByZone[r.Device] == nil {
					held.memoryByZone[r.Device] = make(map[int64]int64)
				}
				for page, bytes := range HeldMemory(r) {
					held.memoryByZone[r.Device][page] += bytes
				}
				continue
			}
			held.displacedResults = append(held.displacedResults, r)
			held.displacedCPUs = held.displacedCPUs.Union(r.Decision.CPUs)
		}
	}
	return held
}

// dropShort removes a capacity of which the zone has less than its claims hold, because the machine or the reservations
// have changed. The scheduler gives nothing of a device while one of its capacities is less than what is allocated of it, and
// gives nothing of a capacity that the device lacks.
func (h holdings) dropShort(z *Zone) {
	if z.CPUCapacity < h.byZone[z.Name].Size() {
		z.CPUCapacity = 0
	}
	for page, bytes := range h.memoryByZone[z.Name] {
		switch {
		case page == BasePages && z.Memory < bytes:
			z.Memory = 0
		case page != BasePages && z.Hugepages[page]*page < bytes:
			delete(z.Hugepages, page)
		}
	}
}

// takeMemory subtracts a displaced result's memory and hugepages from a zone
// that they may come from. Memory that may come from several zones is
// subtracted from each.
func takeMemory(z *Zone, r contract.ResultRecord) {
	if !r.Decision.Mems.Overlaps(z.Mems) {
		return
	}
	for page, bytes := range HeldMemory(r) {
		if page == BasePages {
			z.Memory = max(0, z.Memory-bytes)
			continue
		}
		if pages, offered := z.Hugepages[page]; offered {
			z.Hugepages[page] = pages - bytes/page
		}
	}
	maps.DeleteFunc(z.Hugepages, func(_, pages int64) bool { return pages <= 0 })
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
