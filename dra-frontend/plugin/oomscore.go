// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// scoreOOM gives each result of the record the oom_score_adj that kubelet would
// give its container for the claimed amounts. Where nobody could apply it, and
// where kubelet would give the worst, it is left to kubelet.
func (d *Driver) scoreOOM(record *contract.ClaimRecord, u users, features []string) error {
	if d.memoryCapacity == nil || !slices.Contains(features, contract.FeatureOOMScore) {
		return nil
	}
	capacity, err := d.memoryCapacity()
	if err == nil && capacity <= 0 {
		err = fmt.Errorf("it is %d bytes", capacity)
	}
	if err != nil {
		return fmt.Errorf("the OOM score depends on the node's memory: %w", err)
	}
	for i := range record.Results {
		score := u.oomScore(record.Results[i].Request, capacity)
		if record.Joinable && score < oomscore.BestEffort {
			// Of pods that come later nothing is known but that they have CPUs.
			score = max(score, oomscore.CPUsOnly)
		}
		if score < oomscore.BestEffort {
			decision := &record.Results[i].Decision
			decision.OOMScoreAdj, decision.Requires = &score, append(decision.Requires, contract.FeatureOOMScore)
		}
	}
	return nil
}

// oomScore is the value for a result: of several containers that use it, the
// one with the highest decides. A container takes the lowest value of its
// results, and each has all of them counted.
func (u users) oomScore(request string, capacity int64) int {
	highest := oomscore.Guaranteed
	for _, p := range u.pods {
		of := oomscore.Pod{Resources: p.Resources}
		for _, c := range p.Containers {
			of.Containers = append(of.Containers, oomscore.Container{Resources: u.claimed(c), Init: c.Init, Runs: c.Runs})
		}
		for i, c := range p.Containers {
			if c.uses(u.claim, request) {
				highest = max(highest, of.Score(i, capacity))
			}
		}
	}
	return highest
}

// claimed is what the container requests and is limited to if what it claims
// counts like its spec. A spec that repeats a claim says the same once more, so
// the larger request holds. The limit is the spec's own, or what claims say.
func (u users) claimed(c Container) oomscore.Resources {
	var cpus, memory oomscore.Amount
	for _, k := range u.cpus {
		if k.namespace == u.namespace && c.uses(k.claim, k.request) {
			cpus.Request += 1000 * int64(k.count)
		}
	}
	cpus.Limit = cpus.Request
	unlimited := false
	for _, k := range u.usedBy(c) {
		memory.Request += k.memory.Amount
		memory.Limit += int64(k.memory.Limit)
		unlimited = unlimited || k.unlimited()
	}
	if unlimited {
		memory.Limit = 0
	}
	return oomscore.Resources{CPU: more(c.Resources.CPU, cpus), Memory: more(c.Resources.Memory, memory)}
}

func more(spec, claimed oomscore.Amount) oomscore.Amount {
	claimed.Request = max(claimed.Request, spec.Request)
	if spec.Limit > 0 {
		claimed.Limit = spec.Limit
	}
	return claimed
}
