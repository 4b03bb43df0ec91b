// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// scoreOOM gives each result of the record the oom_score_adj that kubelet would
// give its container for the claimed amounts. Kubelet's own value stays if the
// configuration keeps it, if the actuator cannot set another one, and if the
// score would be the worst one.
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
			// Of later pods only the CPUs are known.
			score = max(score, oomscore.CPUsOnly)
		}
		if score < oomscore.BestEffort {
			decision := &record.Results[i].Decision
			decision.OOMScoreAdj, decision.Requires = &score, append(decision.Requires, contract.FeatureOOMScore)
		}
	}
	return nil
}

// oomScore returns the oom_score_adj for a result: the highest value of the
// containers that use it. A container takes the lowest value of its results,
// and each value counts all results of the container.
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

// claimed returns the container's requests and limits as if its spec had the
// claimed amounts. The larger request counts, because a spec may repeat a
// claim. The limit is the spec's own, or the claims' if the spec has none.
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
