// SPDX-License-Identifier: Apache-2.0

package placement

import "cmp"

// cost is what a pick costs this claim and later claims. It is a list of
// numbers; the first difference decides. Each number is a sum over the parts of
// the machine, so the cheapest way to take CPUs from several parts consists of
// the cheapest ways for each part. The numbers share words, with room for
// machines of up to 65535 CPUs.
type cost struct {
	// spans counts, in this order, sockets, NUMA nodes, cores of which the
	// claim gets only some threads, and L3s.
	spans uint64
	// breaks counts L3s that were free as a whole, L3s of which the claim gets
	// only some CPUs, and cores that were free as a whole and of which the
	// claim gets only some threads.
	breaks uint64
	// loses is the loss of NUMA nodes and of L3s.
	loses uint64
	// cores is the loss of cores.
	cores uint64
}

// impossible is the cost of a pick that cannot be made. It may be added to
// another cost once.
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

// loss returns what a part with free CPUs loses if n are taken. Free CPUs are
// worth more together, so a part is worth the square of its free CPUs. The
// least loss is the tightest fit.
func loss(free, n int) uint64 { return uint64(n * (2*free - n)) }

// offer is a possible pick with the numbers that decide between offers.
type offer struct {
	table *table
	n     int
	// radius is the distance within which the NUMA nodes are.
	radius int
	cost   cost
	// kind is the loss of the kind of cores.
	kind uint64
}

func (o offer) better(than offer) bool {
	if than.table == nil {
		return true
	}
	return cmp.Or(
		cmp.Compare(o.radius, than.radius), cmp.Compare(o.cost.spans, than.cost.spans), cmp.Compare(o.cost.breaks, than.cost.breaks),
		cmp.Compare(o.kind, than.kind), cmp.Compare(o.cost.loses, than.cost.loses), cmp.Compare(o.cost.cores, than.cost.cores),
	) < 0
}
