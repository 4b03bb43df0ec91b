// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Displaced returns the claims with a result on a device that is not offered
// any more: the configuration has cut the machine otherwise since. They keep
// what they hold, and the scheduler does not count it on the devices of today.
func (i Inventory) Displaced(claims []contract.ClaimRecord) []contract.ClaimRecord {
	return slices.DeleteFunc(slices.Clone(claims), func(c contract.ClaimRecord) bool {
		return !slices.ContainsFunc(c.Results, i.displaced)
	})
}

func (i Inventory) displaced(r contract.ResultRecord) bool {
	return !slices.ContainsFunc(i.Zones, func(z zones.Zone) bool { return z.Name == r.Device })
}

// Without returns the inventory less what displaced claims hold, so that the
// scheduler cannot give it away again (I1). Memory that several of today's
// zones may hold is taken off each of them.
func (i Inventory) Without(claims []contract.ClaimRecord) Inventory {
	if len(claims) == 0 {
		return i
	}
	zs := make([]zones.Zone, 0, len(i.Zones))
	for _, z := range i.Zones {
		for _, c := range claims {
			for _, r := range c.Results {
				if i.displaced(r) {
					z = take(z, r)
				}
			}
		}
		if !z.Empty() {
			zs = append(zs, z)
		}
	}
	i.Zones = zs
	return i
}

func take(z zones.Zone, r contract.ResultRecord) zones.Zone {
	held := len(z.CPUs.Intersection(setOf(r.Decision.CPUs)).UnsortedList())
	// Whole steps: the scheduler counts in nothing less.
	z.CPUCapacity = max(0, z.CPUCapacity-(held+z.CPUStep-1)/z.CPUStep*z.CPUStep)
	if setOf(r.Decision.Mems).Intersection(cpuset.New(z.Mems...)).IsEmpty() {
		return z
	}
	amount := func(name string) int64 {
		q, err := resource.ParseQuantity(r.Consumed[name])
		if err != nil {
			return 0
		}
		return q.Value()
	}
	z.Memory = max(0, z.Memory-amount(string(resourceslices.Memory)))
	pages := make(map[int64]int64, len(z.Hugepages))
	for size, n := range z.Hugepages {
		if n -= amount(string(resourceslices.CapacityName(size))) / size; n > 0 {
			pages[size] = n
		}
	}
	z.Hugepages = pages
	return z
}

// setOf reads a list of a record, which is validated.
func setOf(list string) cpuset.CPUSet {
	set, err := cpuset.Parse(list)
	if err != nil {
		return cpuset.New()
	}
	return set
}
