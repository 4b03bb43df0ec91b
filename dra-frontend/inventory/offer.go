// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Displaced returns the claims with a result on a device that is not offered,
// because another configuration divided the machine. Such claims keep their
// CPUs and memory, which the scheduler does not subtract from offered devices.
func (i Inventory) Displaced(claims []contract.ClaimRecord) []contract.ClaimRecord {
	return slices.DeleteFunc(slices.Clone(claims), func(c contract.ClaimRecord) bool {
		return !slices.ContainsFunc(c.Results, func(r contract.ResultRecord) bool { return !i.has(r.Device) })
	})
}

func (i Inventory) has(device string) bool {
	return slices.ContainsFunc(i.Zones, func(z zones.Zone) bool { return z.Name == device })
}

// Offer returns the zones to publish with these claims: the inventory's zones,
// without the CPUs and memory of claims that do not fit.
func (i Inventory) Offer(claims []contract.ClaimRecord) []zones.Zone {
	live := zones.Live{Held: nodestate.ClaimedCPUs(claims), Claimed: make(map[string]contract.CPUSet)}
	var displaced []contract.ResultRecord
	for _, c := range claims {
		for _, r := range c.Results {
			held := r.Decision.CPUs
			if i.has(r.Device) {
				live.Claimed[r.Device] = live.Claimed[r.Device].Union(held)
				continue
			}
			displaced = append(displaced, r)
			live.Displaced = live.Displaced.Union(held)
		}
	}
	zs := i.cut.Offer(live)
	for k := range zs {
		for _, r := range displaced {
			takeMemory(&zs[k], r)
		}
	}
	return slices.DeleteFunc(zs, zones.Zone.Empty)
}

// takeMemory subtracts a displaced result's memory and hugepages from a zone
// that they may come from. Memory that may come from several zones is
// subtracted from each.
func takeMemory(z *zones.Zone, r contract.ResultRecord) {
	if !r.Decision.Mems.Overlaps(z.Mems) {
		return
	}
	z.Memory = max(0, z.Memory-amount(r, string(resourceslices.Memory)))
	for size := range z.Hugepages {
		z.Hugepages[size] -= amount(r, string(resourceslices.CapacityName(size))) / size
		if z.Hugepages[size] <= 0 {
			delete(z.Hugepages, size)
		}
	}
}

func amount(r contract.ResultRecord, capacity string) int64 {
	q, err := resource.ParseQuantity(r.Consumed[capacity])
	if err != nil {
		return 0
	}
	return q.Value()
}
