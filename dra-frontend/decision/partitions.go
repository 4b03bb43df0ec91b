// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"errors"
	"fmt"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/partition"
)

var errPreparedWithout = errors.New("it was prepared without a partition")

// partition returns the kind of partition for a result, empty for none.
func (c call) partition(claim Claim, r Result) (string, error) {
	outcome, known := c.partitions[partition.Key{ClaimUID: claim.UID, Request: r.Request}]
	switch {
	case !known:
		return "", errors.New("it is not among the results of this call: a fault of this driver")
	case outcome.Verdict == partition.NoPartition:
		return "", nil
	case outcome.Verdict != partition.Granted:
		return "", outcome.Reason
	case r.Settings.Isolation == parameters.IsolationIsolated:
		return contract.PartitionIsolated, nil
	}
	return contract.PartitionRoot, nil
}

// decidePartitions returns the outcomes of all results with CPUs.
func (c call) decidePartitions(claims []Claim) map[partition.Key]partition.Outcome {
	pods := podsOf(claims)
	obstacles := make(map[partition.Key]error)
	var open, prepared []partition.Result
	for _, claim := range claims {
		for _, result := range c.partitionResults(claim, pods) {
			obstacles[result.Key] = result.Obstacle
			open = append(open, result)
		}
	}
	for _, record := range c.Prepared {
		if c.replaced(record) {
			continue
		}
		// A prepared result stays as it was decided.
		open = slices.DeleteFunc(open, func(u partition.Result) bool { return u.ClaimUID == record.UID })
		for _, r := range record.Results {
			if r.Decision.CPUs.IsEmpty() {
				continue
			}
			result := partition.Result{
				Key: partition.Key{ClaimUID: record.UID, Request: r.Request}, Claim: record.Name,
				Containers: containersOf(pods[record.Namespace], record.Name, r.Request),
			}
			if r.Decision.Partition == "" {
				// The call may know the reason.
				if result.Obstacle = obstacles[result.Key]; result.Obstacle == nil {
					result.Obstacle = errPreparedWithout
				}
			}
			prepared = append(prepared, result)
		}
	}
	return partition.Decide(open, prepared)
}

// replaced reports whether the record does not count: its claim is decided anew,
// or it is of an earlier claim of the same name, which is being released.
func (c call) replaced(record contract.ClaimRecord) bool {
	return slices.ContainsFunc(c.Claims, func(claim Claim) bool { return claim.UID == record.UID }) ||
		slices.ContainsFunc(c.results, func(u claimResult) bool {
			return u.claim.Namespace == record.Namespace && u.claim.Name == record.Name && u.claim.UID != record.UID
		})
}

// partitionResults returns the claim's results with CPUs. pods are by namespace.
func (c call) partitionResults(claim Claim, pods map[string][]Pod) []partition.Result {
	takesMorePods := claim.joinable()
	for _, r := range claim.Results {
		// A claim that demands a partition takes no more pods.
		takesMorePods = takesMorePods && demand(r) == ""
	}
	var results []partition.Result
	for _, r := range claim.Results {
		if r.Amounts.CPUs == 0 {
			continue
		}
		result := partition.Result{
			Key: partition.Key{ClaimUID: claim.UID, Request: r.Request}, Claim: claim.Name,
			Containers: containersOf(pods[claim.Namespace], claim.Name, r.Request),
			Demand:     demand(r), PodsErr: claim.PodsErr,
		}
		if result.PodsErr == nil {
			result.Obstacle = claim.obstacle(r, takesMorePods)
		}
		feature := contract.FeaturePartition
		if r.Settings.Isolation == parameters.IsolationIsolated {
			feature = contract.FeatureIsolated
		}
		if lack := c.Node.Actuator.Lacks(feature); result.Obstacle == nil && lack != "" {
			result.Obstacle = errors.New(lack)
		}
		results = append(results, result)
	}
	return results
}

// demand names the setting that demands a partition, empty for none.
func demand(r Result) string {
	s := r.Settings
	switch {
	case s.Isolation == parameters.IsolationPartition || s.Isolation == parameters.IsolationIsolated:
		return "cpu.isolation: " + s.Isolation
	case s.Exclusivity == config.ExclusivityPartition:
		return "exclusivity of this node's configuration: " + s.Exclusivity
	}
	return ""
}

// obstacle returns why the result cannot be a partition, whatever else its
// container uses, or nil. takesMorePods reports whether more pods may use the claim.
func (c Claim) obstacle(r Result, takesMorePods bool) error {
	used, running := containers(c.Pods, c.Name, r.Request)
	switch {
	case r.Settings.Isolation == parameters.IsolationNone:
		return errors.New("cpu.isolation of the claim is none")
	case r.Settings.Exclusivity == config.ExclusivityPool:
		return errors.New("exclusivity of this node's configuration is pool")
	case len(c.Pods) > 1:
		return fmt.Errorf("%d pods have the claim", len(c.Pods))
	case used == 0:
		return errors.New("no container uses it")
	case len(running) > 1:
		return fmt.Errorf("%d containers that run at the same time use it (%s)", len(running), contract.Few(running, maxNamed))
	case demand(r) != "":
		return nil
	case takesMorePods:
		return errors.New("more pods may use the claim")
	}
	for _, p := range c.Pods {
		if p.RuntimeClass != "" {
			return fmt.Errorf("pod %s has runtime class %s: its containers may have no cgroup of their own on this machine",
				p.Name, p.RuntimeClass)
		}
	}
	return nil
}

// podsOf returns the pods of the claims by namespace, each once.
func podsOf(claims []Claim) map[string][]Pod {
	pods := make(map[string][]Pod)
	for _, claim := range claims {
		for _, p := range claim.Pods {
			if !slices.ContainsFunc(pods[claim.Namespace], func(known Pod) bool { return known.UID == p.UID }) {
				pods[claim.Namespace] = append(pods[claim.Namespace], p)
			}
		}
	}
	return pods
}

// containersOf returns the containers that use the request, as "pod/container".
func containersOf(pods []Pod, claim, request string) []string {
	var names []string
	for _, p := range pods {
		for _, c := range p.Containers {
			if c.uses(claim, request) {
				names = append(names, p.Name+"/"+c.Name)
			}
		}
	}
	return names
}
