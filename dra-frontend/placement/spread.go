// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// spread takes CPUs in rounds over the L3s, those with most free CPUs first:
// first threads of free cores, then threads that share a core.
func (p *pick) spread(n int) {
	order := p.roundRobin()
	for pass := 0; n > 0; pass++ {
		for _, c := range order {
			// The threads of a broken core that others hold count as passed.
			if held := len(p.cores[c].cpus) - len(p.rest[c]); n > 0 && len(p.rest[c]) > 0 && held == pass {
				p.take(c, 1)
				n--
			}
		}
	}
}

// roundRobin returns the cores, one of each L3 in turn.
func (p *pick) roundRobin() []int {
	l3s := make([]int, len(p.coresOf))
	for i := range l3s {
		l3s[i] = i
	}
	slices.SortStableFunc(l3s, func(a, b int) int {
		return cmp.Compare(p.tally[levelL3][b].free, p.tally[levelL3][a].free)
	})
	order := make([]int, 0, len(p.cores))
	for turn := 0; len(order) < len(p.cores); turn++ {
		for _, l3 := range l3s {
			if c := p.coresOf[l3].lo + turn; c < p.coresOf[l3].hi {
				order = append(order, c)
			}
		}
	}
	return order
}
