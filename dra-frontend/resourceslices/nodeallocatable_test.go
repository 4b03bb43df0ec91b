// SPDX-License-Identifier: Apache-2.0

package resourceslices_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

func mapped(t *testing.T, s topologytest.Spec) []resourceapi.Device {
	t.Helper()
	divided, err := zones.Divide(s.Machine(), zones.Config{GroupBy: zones.NUMANode, SharedMode: zones.PoolDynamic, SharedMinCPUs: 1})
	require.NoError(t, err)
	return resourceslices.Devices(divided.Zones, resourceslices.Options{PageSize: s.PageSize, NodeAllocatable: true})
}

// The mapping that is sent has exactly the capacities of each device.
func TestNodeAllocatable(t *testing.T) {
	for name, c := range map[string]struct {
		spec topologytest.Spec
		want map[string]string
	}{
		"T2": {topologytest.T2(), map[string]string{
			"numa-0": `{"cpu":{"mapping":{"capacityKey":"cpu","capacityMultiplier":"1"}},` +
				`"hugepages-1Gi":{"mapping":{"capacityKey":"hugepages_1Gi","capacityMultiplier":"1"}},` +
				`"hugepages-2Mi":{"mapping":{"capacityKey":"hugepages_2Mi","capacityMultiplier":"1"}},` +
				`"memory":{"mapping":{"capacityKey":"memory","capacityMultiplier":"1"}}}`,
			"numa-1": `{"cpu":{"mapping":{"capacityKey":"cpu","capacityMultiplier":"1"}},` +
				`"hugepages-1Gi":{"mapping":{"capacityKey":"hugepages_1Gi","capacityMultiplier":"1"}},` +
				`"hugepages-2Mi":{"mapping":{"capacityKey":"hugepages_2Mi","capacityMultiplier":"1"}},` +
				`"memory":{"mapping":{"capacityKey":"memory","capacityMultiplier":"1"}}}`,
		}},
		"T6, memory only": {topologytest.T6(), map[string]string{
			"numa-2": `{"memory":{"mapping":{"capacityKey":"memory","capacityMultiplier":"1"}}}`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(map[string]string)
			for _, d := range mapped(t, c.spec) {
				data, err := json.Marshal(d.NodeAllocatableResources)
				require.NoError(t, err)
				got[d.Name] = string(data)
				require.Len(t, d.NodeAllocatableResources, len(d.Capacity))
			}
			for device, want := range c.want {
				require.JSONEq(t, want, got[device])
			}
		})
	}
	for _, d := range devices(t, topologytest.T2(), zones.Config{}) {
		require.Nil(t, d.NodeAllocatableResources, "off")
	}
}

func TestKeepsNodeAllocatable(t *testing.T) {
	sent := mapped(t, topologytest.T2())
	slice := func(change func([]resourceapi.Device)) []resourceapi.ResourceSlice {
		s := (&resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: sent}}).DeepCopy()
		change(s.Spec.Devices)
		return []resourceapi.ResourceSlice{*s}
	}
	for name, c := range map[string]struct {
		published []resourceapi.ResourceSlice
		want      bool
	}{
		"all":      {slice(func([]resourceapi.Device) {}), true},
		"nothing":  {nil, false},
		"dropped":  {slice(func(d []resourceapi.Device) { d[1].NodeAllocatableResources = nil }), false},
		"one less": {slice(func(d []resourceapi.Device) { delete(d[0].NodeAllocatableResources, "memory") }), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, resourceslices.KeepsNodeAllocatable(sent, c.published))
		})
	}
}
