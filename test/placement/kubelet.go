// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	kubelettopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/utils/cpuset"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// kubelet places claims as containers with kubelet's static policy, which gets the
// NUMA nodes from zone, in place of the topology manager.
type kubelet struct {
	policy  cpumanager.Policy
	state   state.State
	zone    affinity
	machine topology.Machine
}

const container = "claim"

func newKubelet(m topology.Machine, v variant) (*kubelet, error) {
	k := &kubelet{machine: m, state: state.NewMemoryState(logr.Discard())}
	k.state.SetDefaultCPUSet(cpuset.New(m.Online().List()...))
	options := map[string]string{cpumanager.PreferAlignByUnCoreCacheOption: "true"}
	if v.wholeCores {
		options[cpumanager.FullPCPUsOnlyOption] = "true"
	}
	var err error
	k.policy, err = cpumanager.NewStaticPolicy(logr.Discard(), kubeletTopology(m), 0, cpuset.New(), &k.zone, options)
	if err != nil {
		return nil, fmt.Errorf("kubelet's static policy: %w", err)
	}
	return k, nil
}

func kubeletTopology(m topology.Machine) *kubelettopology.CPUTopology {
	details := make(kubelettopology.CPUDetails, len(m.CPUs))
	for _, c := range m.CPUs {
		details[c.ID] = kubelettopology.CPUInfo{NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core, UncoreCacheID: c.L3}
	}
	return &kubelettopology.CPUTopology{
		NumCPUs: len(m.CPUs), NumCores: details.Cores().Size(), NumUncoreCache: details.UncoreCaches().Size(),
		NumSockets: details.Sockets().Size(), NumNUMANodes: details.NUMANodes().Size(), CPUDetails: details,
	}
}

// prepare returns the call that places the claim.
func (k *kubelet) prepare(c claim) (func() error, error) {
	k.zone = nil
	mask, err := bitmask.NewBitMask(k.nodes(c)...)
	if err != nil {
		return nil, fmt.Errorf("NUMA nodes of %d CPUs: %w", c.cpus, err)
	}
	k.zone = affinity{mask}
	cpus := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(c.cpus), resource.DecimalSI)}
	pod := &corev1.Pod{}
	pod.UID = c.uid()
	pod.Status.QOSClass = corev1.PodQOSGuaranteed
	pod.Spec.Containers = []corev1.Container{{Name: container, Resources: corev1.ResourceRequirements{Requests: cpus, Limits: cpus}}}
	return func() error {
		if err := k.policy.Allocate(logr.Discard(), k.state, pod, &pod.Spec.Containers[0]); err != nil {
			return fmt.Errorf("kubelet: %d CPUs: %w", c.cpus, err)
		}
		return nil
	}, nil
}

func (k *kubelet) placed(c claim) cpuset.CPUSet {
	got, _ := k.state.GetCPUSet(string(c.uid()), container)
	return got
}

// nodes returns the choice of the topology manager: the first of the smallest sets
// of NUMA nodes with enough free CPUs of the zone.
func (k *kubelet) nodes(c claim) []int {
	free := contract.CPUs(k.state.GetDefaultCPUSet().List()...).Intersection(c.zone.cpus)
	var best []int
	for mask := uint(1); mask < 1<<len(k.machine.NUMANodes); mask++ {
		var ids []int
		have := 0
		for i, n := range k.machine.NUMANodes {
			if mask>>i&1 == 1 {
				ids = append(ids, n.ID)
				have += n.CPUs.Intersection(free).Size()
			}
		}
		if have >= c.cpus && (best == nil || len(ids) < len(best)) {
			best = ids
		}
	}
	return best
}

func (k *kubelet) release(c claim) error {
	return k.policy.RemoveContainer(logr.Discard(), k.state, string(c.uid()), container)
}

func (c claim) uid() types.UID { return types.UID(fmt.Sprintf("claim-%d", c.id)) }

// affinity is the topology manager's answer.
type affinity []bitmask.BitMask

func (a *affinity) GetAffinity(string, string) topologymanager.TopologyHint {
	if len(*a) == 0 {
		return topologymanager.TopologyHint{}
	}
	return topologymanager.TopologyHint{NUMANodeAffinity: (*a)[0], Preferred: true}
}

func (a *affinity) GetPolicy() topologymanager.Policy { return nil }

func (a *affinity) Name() string { return "placement-benchmark" }
