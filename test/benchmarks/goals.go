// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"time"
)

// goal bounds the time of an operation on a CPU that has nothing else to do: the time within which 99 of 100 operations are done if it
// is measured, else the mean.
type goal struct {
	// operation is how the name of the benchmark begins.
	operation string
	limit     time.Duration
}

// goals returns all goals. The first goal whose operation fits a benchmark is the benchmark's.
func goals() []goal {
	return []goal{
		{"Pick/512_CPUs/", 100 * time.Microsecond},
		{"Pick_Full/512_CPUs/", 100 * time.Microsecond},
		{"CreateContainer/claims=0/", 300 * time.Microsecond},
		{"CreateContainer/claims=", 1500 * time.Microsecond},
		{"Apply/pool/containers=500", 20 * time.Millisecond},
		{"Apply/claims/containers=500", 20 * time.Millisecond},
		{"Synchronize/containers=500", 100 * time.Millisecond},
		{"Prepare/one_pod/", 3 * time.Millisecond},
		{"Recovery/claims=500", time.Second},
	}
}

// judge returns the operation's goal, and whether it was missed; nothing for an operation without a goal.
func (r result) judge() string {
	for _, g := range goals() {
		if !strings.HasPrefix(r.name, g.operation) {
			continue
		}
		measured := r.p99
		if measured == 0 {
			measured = r.time
		}
		if measured > g.limit {
			return g.limit.String() + ", missed"
		}
		return g.limit.String()
	}
	return ""
}
