// SPDX-License-Identifier: Apache-2.0

// Package memoryqos computes the values of the memory controller for a claim's
// container: the same function as KEP-2570 (Quality-of-Service for Memory
// Resources), with the claimed amount in the place of the request. Pure.
package memoryqos

import (
	"fmt"
	"math"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Protection selects what the kernel holds back from reclaim.
type Protection string

// Protections. Auto is min where the limit equals the amount, low above it.
const (
	Auto Protection = "auto"
	Min  Protection = "min"
	Low  Protection = "low"
	None Protection = "none"
)

// Policy is the part that comes from the claim's parameters and the driver's
// configuration.
type Policy struct {
	// Limit is the limit in bytes of a container that has none of its own; 0
	// stands for the amount.
	Limit int64
	// Factor is the throttling factor, 0 < f <= 1; nil writes no memory.high.
	Factor     *float64
	Protection Protection
	// PageSize is the base page size in bytes, never a hugepage's.
	PageSize int64
}

// Container returns the values for a container with a claim of amount bytes.
// ownLimit is the container's memory limit in its own spec, 0 for none: it
// stays kubelet's to write, so Max is contract.Max then. A limit below the
// amount is refused: the container could never use what it claims. Limits are
// rounded down to whole pages.
func Container(amount, ownLimit int64, p Policy) (contract.Memory, error) {
	if amount <= 0 || amount%p.PageSize != 0 {
		return contract.Memory{}, fmt.Errorf("memory amount %d is not a positive multiple of the page size %d", amount, p.PageSize)
	}
	m := contract.Memory{High: contract.Max, Max: contract.Max}
	var limit int64
	switch {
	case ownLimit > 0 && ownLimit < amount:
		return contract.Memory{}, fmt.Errorf("the container's memory limit of %d bytes is below the claimed %d bytes: raise the limit or drop it", ownLimit, amount)
	case ownLimit > 0:
		limit = ownLimit
	case p.Limit > 0 && p.Limit < amount:
		return contract.Memory{}, fmt.Errorf("memory.limit of %d bytes is below the claimed %d bytes: want at least the claimed amount", p.Limit, amount)
	default:
		// Whole pages, as the kernel counts.
		limit = max(amount, p.Limit/p.PageSize*p.PageSize)
		m.Max = contract.Limit(limit)
	}
	if p.Factor != nil && limit > amount {
		// float64 and floor as kubelet does, so that both give the same value.
		high := int64(math.Floor((float64(amount)+*p.Factor*(float64(limit)-float64(amount)))/float64(p.PageSize))) * p.PageSize
		if high > amount {
			m.High = contract.Limit(high)
		}
	}
	switch {
	case p.Protection == Min, p.Protection == Auto && limit == amount:
		m.Min = contract.Limit(amount)
	case p.Protection == Low, p.Protection == Auto:
		m.Low = contract.Limit(amount)
	}
	return m, nil
}
