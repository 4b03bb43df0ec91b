// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// pod is a pod of the world, with at most one claim.
type pod struct {
	// name is what the pod asks for.
	name       string
	uid, level string
	// cpus are the claim's CPUs, none for a pod without a claim.
	cpus contract.CPUSet
	// mems are the NUMA nodes of its memory, memory is the amount, empty for none.
	mems   contract.NUMANodeSet
	memory string
	// limit is the memory limit of the pod's container in bytes, 0 for none.
	limit int64
	// pool reports whether the claim's parameters ask for no partition.
	pool bool
	// containers is the number of the pod's containers. All of them use its claim.
	containers int
	// rival reports whether the claim needs CPUs of the claims before it.
	rival bool
}

// The node has 4 CPUs and 2 NUMA nodes.
const (
	cpus, nodes = 4, 2
	namespace   = "ns"
)

// pods returns all pods of a world: two claims that can be prepared together, two claims
// that need CPUs of these two and can be prepared together as well, and a pod without a
// claim.
func pods() []pod {
	all := []pod{
		{name: "CPU 1 and memory", level: contract.LevelBurstable, cpus: contract.CPUs(1), mems: contract.NUMANodes(0),
			memory: "64Mi", limit: 512 << 20, pool: true},
		{name: "CPUs 2-3 alone", cpus: contract.CPUs(2, 3), mems: contract.NUMANodes(1), memory: "32Mi"},
		{name: "CPU 2 alone", level: contract.LevelBurstable, cpus: contract.CPUs(2), rival: true},
		{name: "CPUs 1 and 3 for two", cpus: contract.CPUs(1, 3), containers: 2, rival: true},
		{name: "no claim", level: contract.LevelBurstable},
	}
	for i := range all {
		all[i].containers = max(1, all[i].containers)
		all[i].uid = "a0000000-0000-4000-8000-00000000000" + string(rune('1'+i))
	}
	return all
}

func (p pod) claimed() bool     { return !p.cpus.IsEmpty() }
func (p pod) claimUID() string  { return "c" + p.uid[1:] }
func (p pod) claimName() string { return "claim-of-" + p.uid }
func (p pod) zone() string      { return "zone-of-" + p.uid }

// claim returns the claim's object.
func (p pod) claim() *resourceapi.ResourceClaim {
	consumed := map[resourceapi.QualifiedName]resource.Quantity{"cpu": *resource.NewQuantity(int64(p.cpus.Size()), resource.DecimalSI)}
	if p.memory != "" {
		consumed["memory"] = resource.MustParse(p.memory)
	}
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: p.claimName(), UID: types.UID(p.claimUID()),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.uid, Controller: new(true)}},
			Annotations:     map[string]string{resourceapi.PodResourceClaimAnnotation: "claim"},
		},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: p.uid, UID: types.UID(p.uid)}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "r", Driver: kubelet.DriverName, Pool: "node", Device: p.zone(), ConsumedCapacity: consumed},
				},
			}},
		},
	}
	if p.pool {
		const parameters = `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters","cpu":{"isolation":"none"}}`
		c.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: kubelet.DriverName, Parameters: runtime.RawExtension{Raw: []byte(parameters)},
			}},
		}}
	}
	return c
}

// object returns what the frontend reads of the pod.
func (p pod) object() decision.Pod {
	object := decision.Pod{Name: p.uid, PodRecord: contract.PodRecord{UID: p.uid, QOS: p.level}}
	for _, s := range p.slots() {
		c := decision.Container{Name: s.name(), BesideMain: true, MemoryLimit: p.limit}
		if p.claimed() {
			c.Claims = []decision.ClaimReference{{Claim: p.claimName()}}
		}
		object.Containers = append(object.Containers, c)
	}
	return object
}

// slot is a place for a container of a pod.
type slot struct {
	uid   string
	index int
}

func (p pod) slots() (all []slot) {
	for i := range p.containers {
		all = append(all, slot{p.uid, i})
	}
	return all
}

// name returns the name of the slot's container in the pod.
func (s slot) name() string { return string(rune('a' + s.index)) }

func (p pod) dir() string {
	dir := "kubepods"
	if p.level != "" {
		dir += "/" + p.level
	}
	return dir + "/pod" + p.uid
}

func (p pod) sandbox() *api.PodSandbox {
	return &api.PodSandbox{Id: "sandbox-" + p.uid, Name: "pod", Namespace: namespace, Uid: p.uid,
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + p.dir()}}
}
