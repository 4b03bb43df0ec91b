// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"github.com/containerd/nri/pkg/api"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// pod is a pod of the world, with at most one claim.
type pod struct {
	// name is what the pod asks for.
	name       string
	uid, level string
	// decision is the claim's decision, nil for a pod without a claim.
	decision *contract.Decision
	// rival reports whether the claim needs CPUs of the claims before it.
	rival bool
}

// The node has 4 CPUs and 2 NUMA nodes.
const cpus, nodes = 4, 2

// pods are all pods of a world: two claims that can be prepared together, two claims
// that need CPUs of these two, and a pod without a claim. Before Linux 6.7 no claim is
// a partition.
func pods(version kernel.Release) []pod {
	memory := &contract.Memory{Min: 64 << 20, Low: 64 << 20, High: contract.Max, Max: 512 << 20}
	all := []pod{
		{name: "CPU 1 and memory", level: contract.LevelBurstable,
			decision: &contract.Decision{CPUs: contract.CPUs(1), Mems: contract.NUMANodes(0), Memory: memory}},
		{name: "partition 2-3", decision: &contract.Decision{CPUs: contract.CPUs(2, 3), Mems: contract.NUMANodes(1)}},
		{name: "partition 2", rival: true, level: contract.LevelBurstable, decision: &contract.Decision{CPUs: contract.CPUs(2)}},
		{name: "CPUs 1-2", rival: true, decision: &contract.Decision{CPUs: contract.CPUs(1, 2), Mems: contract.NUMANodes(0)}},
		{name: "no claim", level: contract.LevelBurstable},
	}
	for i := range all {
		all[i].uid = "a0000000-0000-4000-8000-00000000000" + string(rune('1'+i))
		if all[i].decision != nil {
			all[i].decision.V = contract.Version
		}
	}
	if version.Name != kernel.Linux61.Name {
		for _, p := range all[1:3] {
			p.decision.Partition, p.decision.Requires = contract.PartitionRoot, []string{contract.FeaturePartition}
		}
	}
	return all
}

func (p pod) claimUID() string { return "c" + p.uid[1:] }

func (p pod) dir() string {
	dir := "kubepods"
	if p.level != "" {
		dir += "/" + p.level
	}
	return dir + "/pod" + p.uid
}

func (p pod) sandbox() *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-" + p.uid, Name: "pod", Namespace: "ns", Uid: p.uid,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + p.dir()}}
}
