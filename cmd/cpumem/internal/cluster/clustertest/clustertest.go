// SPDX-License-Identifier: Apache-2.0

// Package clustertest makes API objects for tests of the commands about a cluster.
package clustertest

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// Slice returns the only slice of a node, with the zones.
func Slice(node string, zones ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-1"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: kubelet.DriverName, NodeName: &node, Devices: zones,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

// OtherDriver turns the slice into one of another driver.
func OtherDriver(s *resourceapi.ResourceSlice) *resourceapi.ResourceSlice {
	s.Spec.Driver = "gpu.example.com"
	return s
}

// Zone returns a zone with capacities: names and values in turn. The step of cpu is 1, and
// the step of all others 1Mi.
func Zone(name string, capacities ...string) resourceapi.Device {
	d := resourceapi.Device{
		Name: name, AllowMultipleAllocations: new(true),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"dra.cpumem/zone": {StringValue: new("numanode")}},
		Capacity:   make(map[resourceapi.QualifiedName]resourceapi.DeviceCapacity),
	}
	for name, value := range amounts(capacities) {
		step := resource.MustParse("1Mi")
		if name == "cpu" {
			step = resource.MustParse("1")
		}
		d.Capacity[name] = resourceapi.DeviceCapacity{Value: value, RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    new(resource.MustParse("0")),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: new(resource.MustParse("0")), Step: &step},
		}}
	}
	return d
}

func amounts(pairs []string) map[resourceapi.QualifiedName]resource.Quantity {
	out := make(map[resourceapi.QualifiedName]resource.Quantity)
	for i := 0; i < len(pairs); i += 2 {
		out[resourceapi.QualifiedName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// Claim returns a claim in the namespace default, with a request "zone" for the amounts of
// the class dra.cpumem.
func Claim(name string, wanted ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "zone", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: kubelet.DriverName, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: amounts(wanted)},
	}}}
	return c
}

// Allocated returns a claim with the amounts of the zone, for a pod named after the claim.
// data is what the frontend wrote into the claim's status; without data the claim is not
// prepared.
func Allocated(name, node, zone, data string, granted ...string) *resourceapi.ResourceClaim {
	c := Claim(name, granted...)
	share := types.UID(name)
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod-of-" + name}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "zone", Driver: kubelet.DriverName, Pool: node, Device: zone, ShareID: &share, ConsumedCapacity: amounts(granted),
		}},
	}}
	if data != "" {
		c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
			Driver: kubelet.DriverName, Pool: node, Device: zone, ShareID: new(name), Data: &runtime.RawExtension{Raw: []byte(data)},
			Conditions: []metav1.Condition{{Type: claimstatus.ConditionReady, Status: metav1.ConditionTrue, Reason: "Prepared"}},
		}}
	}
	return c
}
