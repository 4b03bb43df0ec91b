// SPDX-License-Identifier: Apache-2.0

// Package memoryqos computes the values of the memory controller for a container
// with a claim: the function of KEP-2570 (Quality-of-Service for Memory
// Resources), with the claimed amount as the request. If a container uses several
// results, each result has a part, and the parts add up to the container's
// values. The package neither reads nor writes files.
package memoryqos

import (
	"fmt"
	"math"
	"math/bits"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Protection selects the cgroup file that protects the claimed amount.
type Protection string

// Protections. Auto is min where the limit equals the amount, low above it.
const (
	Auto Protection = "auto"
	Min  Protection = "min"
	Low  Protection = "low"
	None Protection = "none"
)

// Policy has the values from the claim's parameters and the driver's
// configuration.
type Policy struct {
	// Limit is the limit in bytes of a container without its own limit: 0 for
	// the claimed amount, contract.Max for no limit.
	Limit contract.Limit
	// Factor is the throttling factor, 0 < f <= 1; nil writes no memory.high.
	Factor     *float64
	Protection Protection
	// PageSize is the base page size in bytes, never a hugepage's.
	PageSize int64
}

// Result returns the result of amount bytes. A limit below the amount is an
// error: the container could not use the claimed amount. Limits are rounded down
// to whole pages, which the kernel counts.
func (p Policy) Result(amount int64) (Result, error) {
	u := Result{Amount: amount, Limit: p.Limit}
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

// Result is a result with memory that a container uses.
type Result struct {
	// Amount is the claimed amount in bytes.
	Amount int64
	// Limit is the result's part, in bytes, of the limit of a container without
	// its own limit.
	Limit contract.Limit
}

// Container is a container with all results with memory that it uses.
type Container struct {
	// Limit is the container's own limit in bytes, 0 for none.
	Limit int64
	// Ceiling in bytes replaces an absent limit: the pod's limit, or the
	// allocatable memory in the node's status. Kubelet takes a larger value, in
	// any pod: the capacity less the kube and system reservations, with hugepages
	// and the eviction threshold.
	Ceiling int64
	// Results has one order, whichever result Values is called for. The results without a
	// limit come last, so that only these depend on the ceiling.
	Results []Result
}

// Values returns the part of result number i, whose policy is p. If the container has
// its own limit, Max is contract.Max, because kubelet writes this limit. A limit of the
// container below the sum of the amounts is an error.
func (c Container) Values(i int, p Policy) (contract.Memory, error) {
	amount, limit, limited := c.sum(len(c.Results))
	if c.Limit > 0 && c.Limit < amount {
		return contract.Memory{}, fmt.Errorf("the container's memory limit of %d bytes is below the claimed %d bytes: "+
			"raise the limit or drop it", c.Limit, amount)
	}
	m := contract.Memory{High: contract.Max, Max: contract.Max}
	if c.Limit == 0 {
		m.Max = c.Results[i].Limit
	}
	// The whole container has a memory.high or none: "max" in one part would
	// make the sum "max".
	if p.Factor != nil && p.high(amount, limit) > amount {
		m.High = contract.Limit(c.high(i+1, p) - c.high(i, p))
	}
	part := contract.Limit(c.Results[i].Amount)
	switch {
	case p.Protection == Min, p.Protection == Auto && limited && limit == amount:
		m.Min = part
	case p.Protection == Low, p.Protection == Auto:
		m.Low = part
	}
	return m, nil
}

// Headroom returns the limit divided by the claimed amounts, +Inf without a
// limit. Of the containers that use a result, the container with the least
// headroom decides its values.
func (c Container) Headroom() float64 {
	amount, limit, limited := c.sum(len(c.Results))
	if !limited {
		return math.Inf(1)
	}
	return float64(limit) / float64(amount)
}

// high returns memory.high of the first n results alone. A result's part is the
// difference of two such values. With equal factors the parts add up, to the
// byte, to the value of one claim of the sum.
func (c Container) high(n int, p Policy) int64 {
	amount, limit, _ := c.sum(n)
	return p.high(amount, limit)
}

// high uses kubelet's formula, in float64 like kubelet, to give the same value.
func (p Policy) high(amount, limit int64) int64 {
	return int64(math.Floor(float64(amount)+(float64(limit)-float64(amount))**p.Factor)/float64(p.PageSize)) * p.PageSize
}

// most is more memory than any machine has. The sum of two such values does not
// leave the range of float64 and int64.
const most = int64(1) << 62

// sum returns the amounts of the first n results and their share of the
// container's limit; limited is false if the ceiling replaces the limit.
func (c Container) sum(n int) (amount, limit int64, limited bool) {
	first, all := total(c.Results[:n]), total(c.Results)
	switch {
	case c.Limit > 0:
		return first.amount, share(min(c.Limit, most), first.amount, all.amount), true
	case all.unlimited > 0:
		return first.amount,
			first.limit + share(max(min(c.Ceiling, most)-all.limit, all.unlimited), first.unlimited, all.unlimited),
			false
	}
	return first.amount, first.limit, true
}

// sums has, in bytes, the sum of all amounts, the sum of the limits, and the sum
// of the amounts without a limit.
type sums struct{ amount, limit, unlimited int64 }

func total(results []Result) sums {
	var s sums
	for _, u := range results {
		s.amount += u.Amount
		if u.Limit == contract.Max {
			s.unlimited += u.Amount
			continue
		}
		s.limit += min(int64(u.Limit), most-s.limit)
	}
	return s
}

// share returns total*part/whole, rounded down; part is at most whole.
func share(total, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(total), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(quotient)
}
