// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// cpusOf returns all CPUs of the part of the machine that the zone stands for,
// also CPUs that the zone does not offer.
func cpusOf(z zones.Zone, m topology.Machine) []topology.CPU {
	return slices.DeleteFunc(slices.Clone(m.CPUs), func(c topology.CPU) bool {
		switch z.Kind {
		case zones.NUMANode:
			return c.Node != z.ID
		case zones.Socket:
			return c.Socket != z.ID
		}
		return false
	})
}

// l3sOf groups CPUs: the L3s of each node by kind of cores, the cores of each
// L3.
func l3sOf(cpus []topology.CPU) []L3 {
	cpus = slices.SortedFunc(slices.Values(cpus), func(a, b topology.CPU) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.L3, b.L3), -cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Core, b.Core), cmp.Compare(a.ID, b.ID))
	})
	l3s := []L3{}
	for i := 0; i < len(cpus); {
		first := cpus[i]
		var threads []int
		for ; i < len(cpus) && cpus[i].Core == first.Core; i++ {
			threads = append(threads, cpus[i].ID)
		}
		last := len(l3s) - 1
		if last < 0 || l3s[last].ID != first.L3 || l3s[last].Type != first.Type {
			l3s = append(l3s, L3{ID: first.L3, Node: first.Node, Type: first.Type})
			last++
		}
		l3s[last].Cores = append(l3s[last].Cores, contract.CPUs(threads...))
	}
	return l3s
}
