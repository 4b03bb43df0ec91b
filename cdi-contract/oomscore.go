// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"slices"
)

// FeatureOOMScore: the decision has an oom_score_adj, and the actuator's
// runtime can give a container one.
const FeatureOOMScore = "oomScoreAdj"

// The kernel's bounds (proc_pid_oom_score_adj(5)).
const (
	minOOMScoreAdj = -1000
	maxOOMScoreAdj = 1000
)

// LowersOOMScore reports whether a container that came with an oom_score_adj
// gets the decision's instead: the lower of both holds, so that a claim never
// makes a container worse off. came is nil where the container has none.
func (d Decision) LowersOOMScore(came *int) bool {
	return d.OOMScoreAdj != nil && (came == nil || *came > *d.OOMScoreAdj)
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

// combineOOMScores is the lower of both. It does not add up as amounts do: the
// writer puts the value of the whole container into each of its decisions.
func combineOOMScores(a, b *int) *int {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}
