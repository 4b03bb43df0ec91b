// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// qosClass returns the QoS class that the API server gives a pod; the level of
// the pod's cgroup depends on the class. A limit without a request is a
// request, too.
func qosClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	resources := []corev1.ResourceRequirements{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		resources = append(resources, c.Resources)
	}
	if spec.Resources != nil {
		resources = []corev1.ResourceRequirements{*spec.Resources}
	}
	guaranteed, any := true, false
	for _, r := range resources {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, request := r.Limits[name], r.Requests[name]
			if request.IsZero() {
				request = limit
			}
			any = any || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && request.Cmp(limit) == 0
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
