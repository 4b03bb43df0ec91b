// SPDX-License-Identifier: Apache-2.0

package resourceslices

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Published reports whether the slices have the devices that were sent, with
// their attributes, amounts and taints, and no other devices. Fields that a
// server may add or drop are not compared.
func Published(sent []resourceapi.Device, published []resourceapi.ResourceSlice) bool {
	has := make(map[string]resourceapi.Device)
	for _, s := range published {
		for _, d := range s.Spec.Devices {
			has[d.Name] = d
		}
	}
	if len(has) != len(sent) {
		return false
	}
	for _, d := range sent {
		got, known := has[d.Name]
		if !known || !apiequality.Semantic.DeepEqual(d.Attributes, got.Attributes) ||
			!sameAmounts(d, got) || !slices.EqualFunc(d.Taints, got.Taints, sameTaint) {
			return false
		}
	}
	return true
}

func sameAmounts(a, b resourceapi.Device) bool {
	if len(a.Capacity) != len(b.Capacity) {
		return false
	}
	for name, c := range a.Capacity {
		if other, known := b.Capacity[name]; !known || c.Value.Cmp(other.Value) != 0 {
			return false
		}
	}
	return true
}

// sameTaint ignores the time, which the server adds.
func sameTaint(a, b resourceapi.DeviceTaint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}
