// SPDX-License-Identifier: Apache-2.0

package zones

import (
	"fmt"
	"maps"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// LeftOut is a part of the machine that is not offered although the
// configuration does not name it.
type LeftOut struct {
	// What names CPUs or the memory of a node. Why is the reason.
	What string `json:"what"`
	Why  string `json:"why"`
}

// leftOut returns the CPUs that are neither claimed nor shared: pods cannot
// have them, or isolcpus has them.
func (c Config) leftOut(m topology.Machine) contract.CPUSet {
	return m.Restricted.Union(c.leftOutIsolated(m))
}

func (c Config) leftOutIsolated(m topology.Machine) contract.CPUSet {
	if c.OfferIsolated {
		return contract.CPUSet{}
	}
	return m.Isolated
}

// without names, for messages, the CPUs that are left out; empty for none.
func (c Config) without(m topology.Machine) string {
	out := c.leftOut(m)
	if out.IsEmpty() {
		return ""
	}
	return fmt.Sprintf(" without %s (isolcpus: %q, no pod can have: %q)", out, c.leftOutIsolated(m), m.Restricted)
}

func (c Config) manages(cpu int) bool { return c.ManagedCPUs.IsEmpty() || c.ManagedCPUs.Contains(cpu) }

// LeftOut returns the parts of the machine that are not offered, for the log
// and the operator.
func (i Division) LeftOut() []LeftOut {
	c, m := i.config, i.Machine
	var out []LeftOut
	if cpus := c.leftOutIsolated(m); !cpus.IsEmpty() {
		out = append(out, LeftOut{"CPUs " + cpus.String(), "the kernel's parameter isolcpus has them; offerIsolcpus offers them"})
	}
	out = append(out, restricted(m)...)
	if cpus := i.inNoPool(); !cpus.IsEmpty() {
		out = append(out, LeftOut{"CPUs " + cpus.String(), "they are no whole cores of managedCPUs, and sharedPool.mode fixed " +
			"leaves them out of the pool: with managedCPUs of whole cores, claims or the pool have them"})
	}
	for _, n := range m.NUMANodes {
		for _, size := range slices.Sorted(maps.Keys(c.ReservedHugepages[n.ID])) {
			if _, has := n.Hugepages[size]; !has {
				out = append(out, LeftOut{fmt.Sprintf("reservedHugepages of %s on NUMA node %d", contract.FormatPageSize(size), n.ID),
					"the kernel has no pages of this size"})
			}
		}
		if n.MemTotal > 0 && !c.offers(n) {
			out = append(out, LeftOut{fmt.Sprintf("memory of NUMA node %d", n.ID),
				fmt.Sprintf("its kind is %s, memoryTypes are %v", n.Memory, c.MemoryTypes)})
		}
	}
	return out
}

// inNoPool returns the managed CPUs that neither a claim nor a fixed pool can have.
func (i Division) inNoPool() contract.CPUSet {
	if i.config.SharedMode != PoolFixed {
		return contract.CPUSet{}
	}
	cpus := i.Machine.Online().Difference(i.Pool.CPUs).Difference(i.config.leftOut(i.Machine))
	for _, z := range i.Zones {
		cpus = cpus.Difference(z.CPUs)
	}
	return cpus
}

// maxPartitions bounds the partitions that are named.
const maxPartitions = 8

// restricted returns the CPUs that no pod can have, by what has them.
func restricted(m topology.Machine) []LeftOut {
	var out []LeftOut
	rest := m.Restricted
	for i, p := range m.ForeignPartitions {
		cpus := rest.Intersection(p.CPUs)
		if i < maxPartitions && !cpus.IsEmpty() {
			out = append(out, LeftOut{"CPUs " + cpus.String(),
				fmt.Sprintf("the cgroup %.120q is a cpuset partition (%s) of another program", p.Cgroup, p.Kind)})
			rest = rest.Difference(cpus)
		}
	}
	if !rest.IsEmpty() {
		out = append(out, LeftOut{"CPUs " + rest.String(),
			"no pod can have them: cpuset.cpus of kubepods or of a cgroup above lacks them, " +
				"or a cpuset partition of another program has them"})
	}
	return out
}

// countLeftOut counts the zone's managed CPUs that are left out.
func (z *Zone) countLeftOut(m topology.Machine, c Config, cpus []topology.CPU) {
	isolated := c.leftOutIsolated(m)
	for _, cpu := range cpus {
		switch {
		case !c.manages(cpu.ID):
		case m.Restricted.Contains(cpu.ID):
			z.Restricted++
		case isolated.Contains(cpu.ID):
			z.Isolated++
		}
	}
}
