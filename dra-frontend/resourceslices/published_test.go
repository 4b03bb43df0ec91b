// SPDX-License-Identifier: Apache-2.0

package resourceslices_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

func TestPublished(t *testing.T) {
	taint := resourceapi.DeviceTaint{Key: "k", Value: "v", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	device := func(change func(*resourceapi.Device)) resourceapi.Device {
		d := resourceapi.Device{
			Name:       "numa-0",
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"a": {IntValue: new(int64(1))}},
			Capacity:   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"cpu": {Value: resource.MustParse("4")}},
			Taints:     []resourceapi.DeviceTaint{taint},
		}
		change(&d)
		return d
	}
	same := func(*resourceapi.Device) {}
	other := device(func(d *resourceapi.Device) { d.Name = "numa-1" })
	for name, tc := range map[string]struct {
		published []resourceapi.Device
		want      bool
	}{
		"as sent": {[]resourceapi.Device{other, device(same)}, true},
		"time of a taint": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Taints[0].TimeAdded = new(metav1.Now())
		})}, true},
		"policy dropped": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) { d.AllowMultipleAllocations = nil })}, true},
		"another form of an amount": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Capacity["cpu"] = resourceapi.DeviceCapacity{Value: resource.MustParse("4000m")}
		})}, true},
		"nothing":     {nil, false},
		"one missing": {[]resourceapi.Device{device(same)}, false},
		"one too many": {[]resourceapi.Device{other, device(same), device(func(d *resourceapi.Device) {
			d.Name = "numa-2"
		})}, false},
		"another name":  {[]resourceapi.Device{other, device(func(d *resourceapi.Device) { d.Name = "numa-2" })}, false},
		"no taint":      {[]resourceapi.Device{other, device(func(d *resourceapi.Device) { d.Taints = nil })}, false},
		"another taint": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) { d.Taints[0].Value = "w" })}, false},
		"another attribute": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Attributes["a"] = resourceapi.DeviceAttribute{IntValue: new(int64(2))}
		})}, false},
		"another amount": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Capacity["cpu"] = resourceapi.DeviceCapacity{Value: resource.MustParse("3")}
		})}, false},
		"another capacity": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("4")}}
		})}, false},
		"one capacity more": {[]resourceapi.Device{other, device(func(d *resourceapi.Device) {
			d.Capacity["memory"] = resourceapi.DeviceCapacity{Value: resource.MustParse("4")}
		})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sent := []resourceapi.Device{device(func(d *resourceapi.Device) { d.AllowMultipleAllocations = new(true) }), other}
			var published []resourceapi.ResourceSlice
			for _, d := range tc.published {
				published = append(published, resourceapi.ResourceSlice{
					Spec: resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{d}},
				})
			}
			require.Equal(t, tc.want, resourceslices.Published(sent, published))
		})
	}
}
