// SPDX-License-Identifier: Apache-2.0

package placement

import "cmp"

// cost is what a pick costs the claim and those to come. It is a list of
// numbers, the first that differs decides. Each of them is the sum of what the
// parts of the machine cost on their own, so that the cheapest way to take a
// number of CPUs from several parts is made of the cheapest ways for each. The
// numbers share words, which have room for machines of up to 65535 CPUs.
type cost struct {
	// spans counts, in this order, sockets, NUMA nodes, cores of which the
	// claim gets only some threads, and L3s.
	spans uint64
	// breaks counts L3s that were free as a whole and no longer are, L3s of
	// which the claim gets only some CPUs, and cores that were free as a whole
	// and keep only a part.
	breaks uint64
	// loses is what NUMA nodes lose, and what L3s lose.
	loses uint64
	// cores is what cores lose.
	cores uint64
}

// impossible is the cost of what cannot be done. It may be added to others
// once.
var impossible = cost{spans: 1 << 63}

const (
	oneSocket      = 1 << 48
	oneNode        = 1 << 32
	onePartialCore = 1 << 16
	oneL3          = 1

	oneUsedL3     = 1 << 32
	onePartialL3  = 1 << 16
	oneBrokenCore = 1

	nodeLoss = 1 << 32
	l3Loss   = 1
)

func (c cost) possible() bool { return c.spans < impossible.spans }

func (c cost) partialCores() int { return int(c.spans / onePartialCore % (oneNode / onePartialCore)) }

func (c cost) plus(o cost) cost {
	return cost{c.spans + o.spans, c.breaks + o.breaks, c.loses + o.loses, c.cores + o.cores}
}

func (c cost) less(o cost) bool {
	if c.spans != o.spans {
		return c.spans < o.spans
	}
	if c.breaks != o.breaks {
		return c.breaks < o.breaks
	}
	if c.loses != o.loses {
		return c.loses < o.loses
	}
	return c.cores < o.cores
}

// loss tells what a part with free CPUs loses when n are taken: free CPUs are
// worth the more the more of them are together, so a part counts with the
// square of its free CPUs. The least loss is the tightest fit.
func loss(free, n int) uint64 { return uint64(n * (2*free - n)) }

// offer is a pick with what decides between offers.
type offer struct {
	table *table
	n     int
	// radius is the distance within which the NUMA nodes are.
	radius int
	cost   cost
	// kind is what the kind of cores loses.
	kind uint64
}

func (o offer) better(than offer) bool {
	if than.table == nil {
		return true
	}
	return cmp.Or(cmp.Compare(o.radius, than.radius), cmp.Compare(o.cost.spans, than.cost.spans), cmp.Compare(o.cost.breaks, than.cost.breaks),
		cmp.Compare(o.kind, than.kind), cmp.Compare(o.cost.loses, than.cost.loses), cmp.Compare(o.cost.cores, than.cost.cores)) < 0
}
