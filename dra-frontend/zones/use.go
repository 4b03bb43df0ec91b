// SPDX-License-Identifier: Apache-2.0

package zones

import (
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// Use is what claims hold of a zone.
type Use struct {
	Zone string
	// Amounts are the zone's capacities with what claims hold of them.
	Amounts map[resourceapi.QualifiedName]Amount
	Free    cpulayout.Blocks
}

// Amount is in CPUs or bytes.
type Amount struct{ Capacity, Claimed int64 }

// Uses returns what the claims hold of each offered zone. What they hold on devices
// that are not offered is not in it: [Division.Offer] took it from the capacities.
func (i Division) Uses(offered []Zone, claims []contract.ClaimRecord) []Use {
	places := make(map[int]cpulayout.Place, len(i.Machine.CPUs))
	threads := make(map[int]int)
	for _, cpu := range i.Machine.CPUs {
		threads[cpu.Core]++
	}
	for _, cpu := range i.Machine.CPUs {
		places[cpu.ID] = cpulayout.Place{Core: cpu.Core, L3: cpu.L3, Threads: threads[cpu.Core]}
	}
	held := nodestate.ClaimedCPUs(claims)
	uses := make([]Use, 0, len(offered))
	for _, z := range offered {
		claimed := claimedOf(z.Name, claims)
		amounts := map[resourceapi.QualifiedName]Amount{
			CapacityCPU:    {Capacity: int64(z.CPUCapacity), Claimed: claimed[CapacityCPU]},
			CapacityMemory: {Capacity: z.Memory, Claimed: claimed[CapacityMemory]},
		}
		for page, pages := range z.Hugepages {
			name := CapacityHugepages(page)
			amounts[name] = Amount{Capacity: page * pages, Claimed: claimed[name]}
		}
		uses = append(uses, Use{
			Zone: z.Name, Amounts: amounts,
			Free: cpulayout.Count(z.CPUs, held, func(id int) cpulayout.Place { return places[id] }).
				Within(z.CPUCapacity-int(claimed[CapacityCPU]), z.ThreadsPerCore),
		})
	}
	return uses
}

// claimedOf returns what the claims hold of a device, in CPUs and bytes.
func claimedOf(device string, claims []contract.ClaimRecord) map[resourceapi.QualifiedName]int64 {
	sum := make(map[resourceapi.QualifiedName]int64)
	for _, c := range claims {
		for _, r := range c.Results {
			if r.Device != device {
				continue
			}
			sum[CapacityCPU] += int64(r.Decision.CPUs.Size())
			for page, bytes := range HeldMemory(r) {
				name := CapacityMemory
				if page != BasePages {
					name = CapacityHugepages(page)
				}
				sum[name] += bytes
			}
		}
	}
	return sum
}
