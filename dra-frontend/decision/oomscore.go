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
	pods := c.oomPods(claim)
	for i := range record.Results {
		score := c.oomScore(pods, claim, record.Results[i].Request)
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

// oomPods returns the claim's pods with the claimed amounts.
func (c call) oomPods(claim Claim) []oomscore.Pod {
	pods := make([]oomscore.Pod, len(claim.Pods))
	for i, p := range claim.Pods {
		pods[i].Resources = p.Resources
		for _, container := range p.Containers {
			pods[i].Containers = append(pods[i].Containers, oomscore.Container{
				Resources: c.resources(claim, container), Init: container.Init, BesideMain: container.BesideMain,
			})
		}
	}
	return pods
}

// oomScore returns the oom_score_adj for a result: the highest value of the
// containers that use it. A container takes the lowest value of its results,
// and each value counts all results of the container. pods are those of oomPods.
func (c call) oomScore(pods []oomscore.Pod, claim Claim, request string) int {
	highest := oomscore.Guaranteed
	for i, p := range claim.Pods {
		for n, container := range p.Containers {
			if container.uses(claim.Name, request) {
				highest = max(highest, pods[i].Score(n, c.Node.MemoryCapacity))
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
