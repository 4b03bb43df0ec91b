// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Names of a zone's capacities. They are published unqualified: requests match
// only the published form.
const (
	CapacityCPU    resourceapi.QualifiedName = "cpu"
	CapacityMemory resourceapi.QualifiedName = "memory"

	hugepagesPrefix = "hugepages_"
)

// CapacityHugepages returns the name of the capacity for a hugepage size in bytes.
func CapacityHugepages(pageSize int64) resourceapi.QualifiedName {
	return resourceapi.QualifiedName(hugepagesPrefix + contract.FormatPageSize(pageSize))
}

// HugepageSize is the inverse of [CapacityHugepages].
func HugepageSize(name resourceapi.QualifiedName) (int64, bool) {
	text, found := strings.CutPrefix(string(name), hugepagesPrefix)
	if !found {
		return 0, false
	}
	size, err := contract.ParsePageSize(text)
	return size, err == nil
}

// Amounts is the consumed capacity of one result.
type Amounts struct {
	// CPUs is the number of claimed CPUs.
	CPUs int
	// Memory is in bytes.
	Memory int64
	// Hugepages maps page size in the contract's form ("2Mi") to bytes.
	Hugepages map[string]int64
}

// maxCPUs is more than any machine has.
const maxCPUs = 1 << 16

// AmountsOf reads the consumed capacity that the scheduler granted to a result.
// It is final: an amount that cannot be given exactly is an error, never rounded.
// basePage is the base page size in bytes.
func AmountsOf(result resourceapi.DeviceRequestAllocationResult, basePage int64) (Amounts, error) {
	a := Amounts{Hugepages: map[string]int64{}}
	if len(result.ConsumedCapacity) == 0 {
		return a, errors.New("it has no consumed capacity: the scheduler must support consumable capacity " +
			"(Kubernetes 1.34 or later with DRAConsumableCapacity)")
	}
	for _, name := range slices.Sorted(maps.Keys(result.ConsumedCapacity)) {
		q := result.ConsumedCapacity[name]
		if q.Sign() < 0 {
			return a, fmt.Errorf("capacity %s: %s is negative", name, q.String())
		}
		n, whole := q.AsInt64()
		if !whole {
			return a, fmt.Errorf("capacity %s: %s is not a whole number; CPUs and bytes cannot be split: "+
				"the scheduler rounds up to what this driver's ResourceSlice says", name, q.String())
		}
		switch page, isHugepages := HugepageSize(name); {
		case name == CapacityCPU:
			if n > maxCPUs {
				return a, fmt.Errorf("capacity cpu: %d CPUs, want at most %d", n, maxCPUs)
			}
			a.CPUs = int(n)
		case name == CapacityMemory:
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

// HasMemory reports whether the amounts have memory or hugepages. Containers that run
// at the same time cannot share these.
func (a Amounts) HasMemory() bool { return a.Memory > 0 || len(a.Hugepages) > 0 }

// BasePages is the page size that stands for memory outside of hugepages.
const BasePages = 0

// HeldMemory returns the bytes that a prepared result holds, by page size. Amounts
// that cannot be read are left out: the record may be of another frontend.
func HeldMemory(r contract.ResultRecord) map[int64]int64 {
	held := make(map[int64]int64)
	for name, amount := range r.Consumed {
		page, hugepages := HugepageSize(resourceapi.QualifiedName(name))
		if !hugepages {
			page = BasePages
			if name != string(CapacityMemory) {
				continue
			}
		}
		if q, err := resource.ParseQuantity(amount); err == nil && q.Sign() > 0 {
			held[page] += q.Value()
		}
	}
	return held
}
