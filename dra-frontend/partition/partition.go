// SPDX-License-Identifier: Apache-2.0

// Package partition decides which results with CPUs become cpuset partitions.
// Package decision calls it once for all claims of a call.
//
// The CPUs of a claim are kept from other containers in one of two ways: the
// shared pool leaves them out, or the claim's container is a cpuset partition,
// so that the kernel takes them from all other cgroups. A partition is one
// cgroup. So a container is a partition with the CPUs of all its results, or of
// none.
package partition

import (
	"fmt"
	"slices"
)

// Key names the results of a request: their answer is the same.
type Key struct{ ClaimUID, Request string }

// Result is a result with CPUs, and everything that decides whether it becomes a
// partition.
type Result struct {
	Key
	// Claim is the claim's name, for messages.
	Claim string
	// Containers are the names of the containers that use the result.
	Containers []string
	// Demand names the setting that demands a partition, empty for none.
	Demand string
	// Obstacle is why the result cannot be a partition, nil for none. A prepared
	// result without an obstacle is a partition.
	Obstacle error
	// PodsErr is why the containers are not all known, nil if they are.
	PodsErr error
}

// Verdict is the answer for a result.
type Verdict int

const (
	// Granted means that the result becomes a partition.
	Granted Verdict = iota + 1
	// NoPartition means that the result becomes no partition, and the shared pool leaves
	// its CPUs out.
	NoPartition
	// Refused means that the claim cannot be prepared.
	Refused
	// Unknown means that the claim cannot be prepared before the containers are
	// known. A decision stands once it is made.
	Unknown
)

// Outcome is a verdict with its reason, nil for Granted.
type Outcome struct {
	Verdict Verdict
	Reason  error
}

// Decide returns the outcome of each open result. Prepared results stay as they
// are. The verdicts do not depend on the order of the results (I8).
func Decide(open, prepared []Result) map[Key]Outcome {
	results := slices.Concat(open, prepared)
	shared := sharing(results)
	obstacles := spreadObstacles(results, len(open), shared)
	unread := spreadUnknown(results, len(open), obstacles, shared)
	outcomes := make(map[Key]Outcome, len(open))
	for i, u := range open {
		if unread[i] != nil {
			outcomes[u.Key] = Outcome{Unknown, unread[i]}
		} else {
			outcomes[u.Key] = outcome(i, results, obstacles, shared)
		}
	}
	return outcomes
}

// spreadObstacles returns the obstacle of each result. The first open results are the
// undecided results: without an obstacle of its own, an undecided result has the
// obstacle of a result with which it shares a container. The text has the first and the last link of a chain of such results.
func spreadObstacles(results []Result, open int, shared [][]string) []error {
	obstacles, last := make([]error, len(results)), make([]error, len(results))
	for i, u := range results {
		obstacles[i], last[i] = u.Obstacle, u.Obstacle
	}
	for changed := true; changed; {
		changed = false
		for i := range results[:open] {
			for j, other := range results {
				if c := shared[i][j]; obstacles[i] == nil && obstacles[j] != nil && c != "" {
					obstacles[i] = fmt.Errorf("container %s also uses claim %s, request %s, which is no partition: %w",
						c, other.Claim, other.Request, last[j])
					if last[i] = last[j]; other.Obstacle != nil {
						last[i] = obstacles[i]
					}
					changed = true
				}
			}
		}
	}
	return obstacles
}

// spreadUnknown returns for each result why its outcome is unknown, nil if it is
// known. Two results are neighbours if a container uses both. An outcome is unknown if
// the containers of the result, or of a neighbour, are not all known. Unknown
// containers of more distant results matter only to a result without an obstacle.
func spreadUnknown(results []Result, open int, obstacles []error, shared [][]string) []error {
	unread, last := make([]error, len(results)), make([]error, len(results))
	for i, u := range results {
		unread[i], last[i] = u.PodsErr, u.PodsErr
	}
	for changed := true; changed; {
		changed = false
		for i := range results[:open] {
			for j, other := range results {
				depends := other.PodsErr != nil || obstacles[i] == nil
				if c := shared[i][j]; unread[i] == nil && unread[j] != nil && depends && c != "" {
					unread[i] = fmt.Errorf("container %s also uses claim %s: %w", c, other.Claim, last[j])
					if last[i] = last[j]; other.PodsErr != nil {
						last[i] = unread[i]
					}
					changed = true
				}
			}
		}
	}
	return unread
}

// outcome returns the outcome of the result i if the containers of its neighbours
// are known.
func outcome(i int, results []Result, obstacles []error, shared [][]string) Outcome {
	u, obstacle := results[i], obstacles[i]
	switch {
	case obstacle == nil:
		return Outcome{Verdict: Granted}
	case u.Demand != "":
		return Outcome{Refused, fmt.Errorf("%s, but it cannot be a cpuset partition: %w", u.Demand, obstacle)}
	}
	for j, other := range results {
		if c := shared[i][j]; c != "" && obstacles[j] == nil {
			return Outcome{Refused, fmt.Errorf("container %s also uses claim %s, which is a cpuset partition, "+
				"and this request cannot be a partition: %w", c, other.Claim, obstacle)}
		}
	}
	return Outcome{NoPartition, obstacle}
}

// sharing returns for each two results a container that uses both, or "".
func sharing(results []Result) [][]string {
	users := make(map[string][]int)
	for i, r := range results {
		for _, c := range r.Containers {
			users[c] = append(users[c], i)
		}
	}
	shared := make([][]string, len(results))
	for i, r := range results {
		shared[i] = make([]string, len(results))
		for _, c := range r.Containers {
			for _, j := range users[c] {
				if shared[i][j] == "" {
					shared[i][j] = c
				}
			}
		}
	}
	return shared
}
