// SPDX-License-Identifier: Apache-2.0

package contract

import "slices"

// Merge returns the one decision for a container with several decisions. The map
// has each decision once. The order does not matter to Combine.
func Merge(decisions map[Key]Decision) Decision {
	merged := Decision{V: Version}
	for _, k := range KeysOf(decisions) {
		merged = Combine(merged, decisions[k])
	}
	return merged
}

// Combine is the merge rule. CPUs, mems and required features are united.
// Amounts are added; [Max] plus an amount is Max. The stricter memory policy
// holds for the nodes of both sides, the stricter partition for the CPUs of
// both sides. The lower OOM score holds. A container that one decision
// frees of its quota ([QuotaNone]) has none. A member that only one side has is taken from
// that side. Combine is commutative and associative, and
// Decision{V: Version} is its identity. Both sides must be valid.
func Combine(a, b Decision) Decision {
	c := Decision{
		V:    Version,
		CPUs: a.CPUs.Union(b.CPUs),
		Mems: a.Mems.Union(b.Mems),

		Partition:    combinePartitions(a.Partition, b.Partition),
		MemoryPolicy: combinePolicies(a.MemoryPolicy, b.MemoryPolicy),
		OOMScoreAdj:  combineOOMScores(a.OOMScoreAdj, b.OOMScoreAdj),
		Quota:        max(a.Quota, b.Quota),
	}
	switch {
	case a.Memory == nil:
		c.Memory = b.Memory
	case b.Memory == nil:
		c.Memory = a.Memory
	default:
		c.Memory = &Memory{
			Min:  a.Memory.Min.add(b.Memory.Min),
			Low:  a.Memory.Low.add(b.Memory.Low),
			High: a.Memory.High.add(b.Memory.High),
			Max:  a.Memory.Max.add(b.Memory.Max),
		}
	}
	for _, side := range []map[string]Limit{a.Hugepages, b.Hugepages} {
		for size, limit := range side {
			if c.Hugepages == nil {
				c.Hugepages = make(map[string]Limit, len(side))
			}
			c.Hugepages[size] = c.Hugepages[size].add(limit)
		}
	}
	c.Requires = append(append(c.Requires, a.Requires...), b.Requires...)
	slices.Sort(c.Requires)
	c.Requires = slices.Compact(c.Requires)
	return c
}

// WithShared returns d with the shared pool's CPUs or mems if d has none.
func (d Decision) WithShared(s Shared) Decision {
	if d.CPUs.IsEmpty() {
		d.CPUs = s.CPUs
	}
	if d.Mems.IsEmpty() {
		d.Mems = s.Mems
	}
	return d
}
