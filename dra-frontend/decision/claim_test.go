// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

func TestOwnedByPod(t *testing.T) {
	owner := func(version, kind string, controls bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Controller: &controls}}
	}
	template := map[string]string{resourceapi.PodResourceClaimAnnotation: "cpus"}
	for name, c := range map[string]struct {
		owners      []metav1.OwnerReference
		annotations map[string]string
		want        bool
	}{
		"no owner":                   {annotations: template},
		"a template":                 {owner("v1", "Pod", true), template, true},
		"an extended resource":       {owner("v1", "Pod", true), map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}, true},
		"a user":                     {owners: owner("v1", "Pod", true)},
		"a pod that controls it not": {owners: owner("v1", "Pod", false), annotations: template},
		"another kind":               {owners: owner("v1", "ReplicationController", true), annotations: template},
		"a pod of another API":       {owners: owner("example.com/v1", "Pod", true), annotations: template},
	} {
		t.Run(name, func(t *testing.T) {
			object := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners, Annotations: c.annotations}}
			require.Equal(t, c.want, decision.Read(object, nil, parameters.Settings{}).OwnedByPod)
		})
	}
}

// A claim is kept if the scheduler allocated the same again, and no result differs in
// any part.
func TestLate(t *testing.T) {
	var claim resourceapi.ResourceClaim
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{
		{Resource: "pods", Name: "known", UID: "1"}, {Resource: "pods", Name: "known", UID: "2"},
		{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "group", UID: "3"}, {Resource: "nodes", UID: "4"},
	}
	late := decision.Late(&claim, contract.ClaimRecord{Pods: []contract.PodRecord{{UID: "1"}}})
	require.Equal(t, claim.Status.ReservedFor[1:2], late, "another pod of the same name; no consumer that is not a pod")
	require.Len(t, claim.Status.ReservedFor, 4, "the claim is as before")
}

func TestSameAllocation(t *testing.T) {
	share := types.UID("s")
	was := contract.ResultRecord{
		Request: "r", Pool: "node", Device: "numa-0", ShareID: "s", Consumed: map[string]string{"cpu": "2"},
	}
	for name, c := range map[string]struct {
		change func(*resourceapi.DeviceRequestAllocationResult)
		want   bool
	}{
		"the same": {change: func(*resourceapi.DeviceRequestAllocationResult) {}, want: true},
		"request":  {change: func(r *resourceapi.DeviceRequestAllocationResult) { r.Request = "x" }},
		"pool":     {change: func(r *resourceapi.DeviceRequestAllocationResult) { r.Pool = "x" }},
		"device":   {change: func(r *resourceapi.DeviceRequestAllocationResult) { r.Device = "numa-1" }},
		"share":    {change: func(r *resourceapi.DeviceRequestAllocationResult) { r.ShareID = nil }},
		"amount": {change: func(r *resourceapi.DeviceRequestAllocationResult) {
			r.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("3")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			is := resourceapi.DeviceRequestAllocationResult{
				Request: "r", Pool: "node", Device: "numa-0", ShareID: &share,
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("2")},
			}
			c.change(&is)
			record := contract.ClaimRecord{Results: []contract.ResultRecord{was}}
			results := []resourceapi.DeviceRequestAllocationResult{is}
			require.Equal(t, c.want, decision.SameAllocation(record, results))
			require.False(t, decision.SameAllocation(record, append(results, is)))
		})
	}
}

// A19: parameters that cannot be read are a fault of the claim, whatever it asks for.
func TestReadFaults(t *testing.T) {
	for name, amount := range map[string]resourceapi.QualifiedName{"CPUs": "cpu", "memory": "memory"} {
		t.Run(name, func(t *testing.T) {
			result := resourceapi.DeviceRequestAllocationResult{
				Request: "r", Driver: contract.Vendor, Pool: "node", Device: "numa-0",
				ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{amount: *resource.NewQuantity(4096, resource.BinarySI)},
			}
			object := &resourceapi.ResourceClaim{Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{}}}
			object.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{
				DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: contract.Vendor, Parameters: runtime.RawExtension{Raw: []byte(`{"cpu":{}}`)},
				}},
			}}
			c := decision.Read(object, []resourceapi.DeviceRequestAllocationResult{result}, parameters.Defaults(config.Default(), 4096))
			require.ErrorContains(t, c.ResultErr, `request "r" on device "numa-0"`)
			require.Empty(t, c.Results)
		})
	}
}

// The node's allocatable memory matters only to memory.high of a claim without a limit.
func TestAllocatableMemory(t *testing.T) {
	factor := 0.5
	for name, c := range map[string]struct {
		limit  contract.Limit
		factor *float64
		needs  bool
	}{
		"limit":                {limit: gi},
		"limit and factor":     {limit: 2 * gi, factor: &factor},
		"unlimited":            {limit: contract.Max},
		"unlimited and factor": {limit: contract.Max, factor: &factor, needs: true},
	} {
		t.Run(name, func(t *testing.T) {
			claim := withMemory(t, claim(1, "numa-0", 0, gi), c.limit, c.factor)
			require.Equal(t, c.needs, claim.NeedsAllocatableMemory())
			in := decision.Input{Node: testNode(t), Claims: []decision.Claim{claim}, AllocatableMemoryErr: errors.New("the API server is away")}
			outcome := decision.Decide(in)[0]
			if !c.needs {
				require.NoError(t, outcome.Err)
				return
			}
			require.ErrorContains(t, outcome.Err, "allocatable memory: the API server is away")
		})
	}
}

// withMemory returns the claim with other memory settings.
func withMemory(t *testing.T, c decision.Claim, limit contract.Limit, factor *float64) decision.Claim {
	m := &c.Results[0].Settings.Memory
	m.Limit, m.Factor = limit, factor
	var err error
	c.Results[0].Memory, err = m.Result(c.Results[0].Amounts.Memory)
	require.NoError(t, err)
	return c
}

// Each claim that is not from a template takes memory of the frontend: their number is bounded, and other claims go on.
func TestFollowedClaimsAreBounded(t *testing.T) {
	node := testNode(t)
	var prepared []contract.ClaimRecord
	for i := range decision.MaxFollowed + 10 {
		prepared = append(prepared, contract.ClaimRecord{UID: fmt.Sprint(i), OwnedByPod: i < 10})
	}
	ours, template := claim(1, "numa-0", 1, 0), claim(2, "numa-0", 1, 0)
	template.OwnedByPod = true
	refused := func(prepared []contract.ClaimRecord) error {
		got := decision.Decide(decision.Input{Node: node, Prepared: prepared, Claims: []decision.Claim{ours, template}})
		require.NoError(t, got[1].Err)
		return got[0].Err
	}
	require.NoError(t, refused(prepared[1:len(prepared)-1]))
	err := refused(prepared)
	require.ErrorContains(t, err, "this node has 500 claims that were not made from a template, and may have 500")
	require.Equal(t, decision.ReasonClaim, decision.ReasonOf(err))
	prepared[len(prepared)-1].UID = ours.UID
	require.NoError(t, refused(prepared), "a claim that is prepared already does not count for itself")
}

// The results of all claims of a node are bounded, with those of the claim.
func TestResultsAreBounded(t *testing.T) {
	node := testNode(t)
	full := contract.ClaimRecord{UID: "full", OwnedByPod: true, Results: make([]contract.ResultRecord, decision.MaxResults-1)}
	decideBeside := func(prepared ...contract.ClaimRecord) error {
		return decision.Decide(decision.Input{Node: node, Prepared: prepared, Claims: []decision.Claim{claim(1, "numa-0", 1, 0)}})[0].Err
	}
	require.NoError(t, decideBeside(full))
	err := decideBeside(full, contract.ClaimRecord{UID: "one", OwnedByPod: true, Results: make([]contract.ResultRecord, 1)})
	require.ErrorContains(t, err, "the claims of this node have 4096 devices, this claim has 1, and a node may have 4096")
	require.Equal(t, decision.ReasonClaim, decision.ReasonOf(err))
}

// Nothing else is prepared during a decision: containers and results are bounded together.
func TestManyContainers(t *testing.T) {
	decideFor := func(claims, containers int) error {
		var pod decision.Pod
		for i := range containers {
			pod.Containers = append(pod.Containers, decision.Container{Name: fmt.Sprint("c", i), BesideMain: true})
		}
		var all []decision.Claim
		for i := range claims {
			c := claim(i+1, "numa-0", 0, 1<<20)
			pod.Containers[0].Claims = append(pod.Containers[0].Claims, decision.ClaimReference{Claim: c.Name})
			all = append(all, c)
		}
		pod.Name, pod.UID = "pod", all[0].Pods[0].UID
		for i := range all {
			all[i].Pods = []decision.Pod{pod}
		}
		return decision.Decide(decision.Input{Node: testNode(t), Claims: all})[0].Err
	}
	require.NoError(t, decideFor(128, 128))
	err := decideFor(128, 129)
	require.ErrorContains(t, err, "its pods have 129 containers, and their claims 128 devices: the product may be at most 16384")
	require.Equal(t, decision.ReasonClaim, decision.ReasonOf(err))
}

// A message about a pod with many claims stays short.
func TestManyMemoryClaims(t *testing.T) {
	var claims []decision.Claim
	for i := range 300 {
		claims = append(claims, claim(i+1, "numa-0", 0, 1<<20))
	}
	claims = inOnePod(claims...)
	for i := range claims {
		claims[i].Pods[0].MemoryLimit = 1 << 20
	}
	err := decision.Decide(decision.Input{Node: testNode(t), Claims: claims})[0].Err
	require.ErrorContains(t, err, "the memory limit of pod")
	require.Less(t, len(err.Error()), 2048)
}
