// SPDX-License-Identifier: Apache-2.0

// Package memoryqos computes the values of the memory controller for a claim's
// container: the same function as KEP-2570 (Quality-of-Service for Memory
// Resources), with the claimed amount in the place of the request. Where a
// container uses several results, each carries its part, and the parts add up
// to the values of the container. Pure.
package memoryqos

import (
	"fmt"
	"math"
	"math/bits"

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
	// Limit is the limit of a container that has none of its own; 0 stands for
	// the amount, contract.Max for no limit.
	Limit contract.Limit
	// Factor is the throttling factor, 0 < f <= 1; nil writes no memory.high.
	Factor     *float64
	Protection Protection
	// PageSize is the base page size in bytes, never a hugepage's.
	PageSize int64
}

// Use returns the use of a result of amount bytes. A limit below the amount is
// refused: the container could never use what it claims. Limits are rounded
// down to whole pages, as the kernel counts.
func (p Policy) Use(amount int64) (Use, error) {
	u := Use{Amount: amount, Limit: p.Limit}
	switch {
	case amount <= 0 || amount%p.PageSize != 0:
		return u, fmt.Errorf("memory amount %d is not a positive multiple of the page size %d", amount, p.PageSize)
	case p.Limit == 0:
		u.Limit = contract.Limit(amount)
	case p.Limit < contract.Limit(amount):
		return u, fmt.Errorf("memory.limit of %d bytes is below the claimed %d bytes: want at least the claimed amount", p.Limit, amount)
	case p.Limit != contract.Max:
		u.Limit -= u.Limit % contract.Limit(p.PageSize)
	}
	return u, nil
}

// Use is one result with memory that a container uses.
type Use struct {
	// Amount is the claimed amount in bytes.
	Amount int64
	// Limit is what the result adds to the limit of a container that has none
	// of its own.
	Limit contract.Limit
}

// Container is a container with all results with memory that it uses.
type Container struct {
	// Limit is the limit in bytes of its own spec, 0 for none.
	Limit int64
	// Ceiling in bytes stands for the limit where there is none at all: that of
	// the whole pod, or the node's allocatable memory as its status has it.
	// Kubelet takes more there: the capacity less what is reserved for it and the
	// system, hugepages and the eviction threshold included, in any pod.
	Ceiling int64
	// Uses are in an order that is the same for whichever of them is asked for,
	// those without a limit last: so only these depend on the ceiling.
	Uses []Use
}

// Values returns the part of result number i, with its policy. A container's
// own limit stays kubelet's to write, so Max is contract.Max then; one below
// the sum of the amounts is refused.
func (c Container) Values(i int, p Policy) (contract.Memory, error) {
	amount, limit, limited := c.sum(len(c.Uses))
	if c.Limit > 0 && c.Limit < amount {
		return contract.Memory{}, fmt.Errorf("the container's memory limit of %d bytes is below the claimed %d bytes: raise the limit or drop it", c.Limit, amount)
	}
	m := contract.Memory{High: contract.Max, Max: contract.Max}
	if c.Limit == 0 {
		m.Max = c.Uses[i].Limit
	}
	// Whether there is a memory.high is decided for the whole container: "max"
	// of one part would take it from all.
	if p.Factor != nil && p.high(amount, limit) > amount {
		m.High = contract.Limit(c.high(i+1, p) - c.high(i, p))
	}
	part := contract.Limit(c.Uses[i].Amount)
	switch {
	case p.Protection == Min, p.Protection == Auto && limited && limit == amount:
		m.Min = part
	case p.Protection == Low, p.Protection == Auto:
		m.Low = part
	}
	return m, nil
}

// Headroom is the limit in units of the claimed amounts: of several containers
// that use a result, the one with the least decides its values.
func (c Container) Headroom() float64 {
	amount, limit, limited := c.sum(len(c.Uses))
	if !limited {
		return math.Inf(1)
	}
	return float64(limit) / float64(amount)
}

// high is memory.high of the first n results alone. The differences are the
// parts of each, so that they add up to what the container would have from one
// claim of the sum, to the byte where the factors are the same.
func (c Container) high(n int, p Policy) int64 {
	amount, limit, _ := c.sum(n)
	return p.high(amount, limit)
}

// high has kubelet's form, float64 included, so that both give the same value.
func (p Policy) high(amount, limit int64) int64 {
	return int64(math.Floor(float64(amount)+(float64(limit)-float64(amount))**p.Factor)/float64(p.PageSize)) * p.PageSize
}

// most is more than any machine has, and sums of two do not leave float64's
// and int64's range.
const most = int64(1) << 62

// sum returns the amounts of the first n results and their share of the
// container's limit; limited is false where the ceiling stands for it.
func (c Container) sum(n int) (amount, limit int64, limited bool) {
	first, all := total(c.Uses[:n]), total(c.Uses)
	switch {
	case c.Limit > 0:
		return first.amount, share(min(c.Limit, most), first.amount, all.amount), true
	case all.unlimited > 0:
		return first.amount, first.limit + share(max(min(c.Ceiling, most)-all.limit, all.unlimited), first.unlimited, all.unlimited), false
	}
	return first.amount, first.limit, true
}

// sums are those of uses: of all amounts, of the limits, and of the amounts
// that have none.
type sums struct{ amount, limit, unlimited int64 }

func total(uses []Use) sums {
	var s sums
	for _, u := range uses {
		s.amount += u.Amount
		if u.Limit == contract.Max {
			s.unlimited += u.Amount
			continue
		}
		s.limit += min(int64(u.Limit), most-s.limit)
	}
	return s
}

// share is total*part/whole, rounded down; part is at most whole.
func share(total, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(quotient)
}
