// SPDX-License-Identifier: Apache-2.0

package resourceslices

import (
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// nodeAllocatable maps the capacities to the node's own CPUs, memory and
// hugepages (KEP-5517), so that the scheduler counts a claim like the requests
// of a pod. The form is of Kubernetes 1.37. The field of 1.36 has another name
// and cannot be sent with these types, so a server of 1.36 drops this field, as
// a server without the feature gate does.
func nodeAllocatable(
	capacities map[resourceapi.QualifiedName]resourceapi.DeviceCapacity,
) map[corev1.ResourceName]resourceapi.NodeAllocatableResource {
	out := make(map[corev1.ResourceName]resourceapi.NodeAllocatableResource, len(capacities))
	for name := range capacities {
		out[resourceName(name)] = resourceapi.NodeAllocatableResource{Mapping: &resourceapi.NodeAllocatableMapping{
			CapacityKey: new(name), CapacityMultiplier: resource.NewQuantity(1, resource.DecimalSI),
		}}
	}
	return out
}

// resourceName returns the name that pods use for the capacity's resource.
func resourceName(capacity resourceapi.QualifiedName) corev1.ResourceName {
	if size, ok := zones.HugepageSize(capacity); ok {
		return corev1.ResourceName(corev1.ResourceHugePagesPrefix + contract.FormatPageSize(size))
	}
	return corev1.ResourceName(capacity)
}

// KeepsNodeAllocatable reports whether the published slices have the mapping of
// every device as it was sent.
func KeepsNodeAllocatable(sent []resourceapi.Device, published []resourceapi.ResourceSlice) bool {
	kept := make(map[string]resourceapi.Device)
	for _, s := range published {
		for _, d := range s.Spec.Devices {
			kept[d.Name] = d
		}
	}
	for _, d := range sent {
		if !apiequality.Semantic.DeepEqual(d.NodeAllocatableResources, kept[d.Name].NodeAllocatableResources) {
			return false
		}
	}
	return true
}
