// SPDX-License-Identifier: Apache-2.0

// Package amounts reads the amounts that the scheduler granted from an
// allocation's result. They are final: an amount that cannot be given exactly
// is an error, never rounded.
package amounts

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

// Amounts is the consumed capacity of one result.
type Amounts struct {
	// CPUs is the number of claimed CPUs.
	CPUs int
	// Memory is in bytes.
	Memory int64
	// Hugepages maps page size in the contract's form ("2Mi") to bytes.
	Hugepages map[string]int64
}

// Of reads the consumed capacity of a result. basePage is the base page size in
// bytes.
func Of(result resourceapi.DeviceRequestAllocationResult, basePage int64) (Amounts, error) {
	a := Amounts{Hugepages: map[string]int64{}}
	if len(result.ConsumedCapacity) == 0 {
		return a, fmt.Errorf("result for request %q on device %q carries no consumed capacity: the scheduler must support "+
			"consumable capacity (Kubernetes 1.34 or later with DRAConsumableCapacity)", result.Request, result.Device)
	}
	for _, name := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
		q := result.ConsumedCapacity[name]
		if q.Sign() < 0 {
			return a, fmt.Errorf("capacity %s: %s is negative", name, q.String())
		}
		n, whole := q.AsInt64()
		if !whole {
			return a, fmt.Errorf("capacity %s: %s is not a whole number; exclusive CPUs and bytes cannot be split: "+
				"the scheduler rounds up to what this driver's ResourceSlice says", name, q.String())
		}
		switch page, isHugepages := resourceslices.PageSize(name); {
		case name == resourceslices.CPU:
			if n > 1<<16 {
				return a, fmt.Errorf("capacity cpu: %d CPUs on one zone", n)
			}
			a.CPUs = int(n)
		case name == resourceslices.Memory:
			if n%basePage != 0 {
				return a, fmt.Errorf("capacity memory: %d bytes is not a multiple of the page size %d", n, basePage)
			}
			a.Memory = n
		case isHugepages:
			if n%page != 0 {
				return a, fmt.Errorf("capacity %s: %d bytes is not a multiple of the page size", name, n)
			}
			if n > 0 {
				a.Hugepages[contract.FormatPageSize(page)] = n
			}
		default:
			return a, fmt.Errorf("capacity %s is not one this driver publishes (cpu, memory, hugepages_<size>)", name)
		}
	}
	return a, nil
}

// Divisible reports whether the amounts have memory or hugepages, which
// containers running at the same time cannot share.
func (a Amounts) Divisible() bool { return a.Memory > 0 || len(a.Hugepages) > 0 }
