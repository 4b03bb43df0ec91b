// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
)

// The kernel's bounds (proc_pid_oom_score_adj(5)).
const (
	minOOMScoreAdj = -1000
	maxOOMScoreAdj = 1000
)

// LowersOOMScore reports whether the decision's oom_score_adj replaces own,
// the container's own (nil: none). The lower value holds, so that a claim never
// makes a container worse off.
func (d Decision) LowersOOMScore(own *int) bool {
	return d.OOMScoreAdj != nil && (own == nil || *own > *d.OOMScoreAdj)
}

func (d Decision) checkOOMScore() error {
	switch {
	case d.OOMScoreAdj == nil:
		return nil
	case *d.OOMScoreAdj < minOOMScoreAdj || *d.OOMScoreAdj > maxOOMScoreAdj:
		return fmt.Errorf("oomScoreAdj: %d is not between %d and %d", *d.OOMScoreAdj, minOOMScoreAdj, maxOOMScoreAdj)
	case !slices.Contains(d.Requires, FeatureOOMScore):
		return fmt.Errorf("oomScoreAdj: %d needs feature %q in requires", *d.OOMScoreAdj, FeatureOOMScore)
	}
	return nil
}

// combineOOMScores returns the lower score. Scores are not added: the frontend
// writes the value for the whole container into each of its decisions.
func combineOOMScores(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}
