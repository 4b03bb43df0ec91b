// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"math"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// scoreOOM gives each result of the record the oom_score_adj that kubelet would
// give its container for the claimed amounts. Kubelet's own value stays if the
// configuration keeps it, if the actuator cannot set another one, and if the
// score would be the worst one.
func (c call) scoreOOM(record *contract.ClaimRecord, claim Claim) {
	if c.Node.MemoryCapacity == 0 || !slices.Contains(c.Node.Actuator.Features, contract.FeatureOOMScore) {
		return
	}
	for i := range record.Results {
		score := c.oomScore(claim, record.Results[i].Request)
		if record.Joinable {
			// Of later pods only the CPUs are known.
			score = max(score, oomscore.CPUsOnly)
		}
		if score < oomscore.BestEffort {
			d := &record.Results[i].Decision
			d.OOMScoreAdj, d.Requires = &score, append(d.Requires, contract.FeatureOOMScore)
		}
	}
}

// oomScore returns the oom_score_adj for a result: the highest value of the
// containers that use it. A container takes the lowest value of its results,
// and each value counts all results of the container.
func (c call) oomScore(claim Claim, request string) int {
	highest := oomscore.Guaranteed
	for _, p := range claim.Pods {
		of := oomscore.Pod{Resources: p.Resources}
		for _, container := range p.Containers {
			of.Containers = append(of.Containers, oomscore.Container{
				Resources: c.resources(claim, container), Init: container.Init, BesideMain: container.BesideMain,
			})
		}
		for i, container := range p.Containers {
			if container.uses(claim.Name, request) {
				highest = max(highest, of.Score(i, c.Node.MemoryCapacity))
			}
		}
	}
	return highest
}

// resources returns the container's requests and limits as if its spec had the
// claimed amounts. The larger request counts, because a spec may repeat a
// claim. The limit is the spec's own, or the claims' if the spec has none.
func (c call) resources(claim Claim, container Container) oomscore.Resources {
	var cpus, memory oomscore.Amount
	unlimited := false
	for _, u := range c.resultsUsedBy(claim, container) {
		cpus.Request += 1000 * int64(u.Amounts.CPUs)
		memory.Request += u.Memory.Amount
		// The sum ends at the largest number: limits that overflow must not look like the request.
		memory.Limit += min(int64(u.Memory.Limit), math.MaxInt64-memory.Limit)
		unlimited = unlimited || u.unlimited()
	}
	cpus.Limit = cpus.Request
	if unlimited {
		memory.Limit = 0
	}
	return oomscore.Resources{CPU: withClaims(container.Resources.CPU, cpus), Memory: withClaims(container.Resources.Memory, memory)}
}

// withClaims returns the larger request, and the spec's limit if it has one.
func withClaims(spec, claimed oomscore.Amount) oomscore.Amount {
	claimed.Request = max(claimed.Request, spec.Request)
	if spec.Limit > 0 {
		claimed.Limit = spec.Limit
	}
	return claimed
}
