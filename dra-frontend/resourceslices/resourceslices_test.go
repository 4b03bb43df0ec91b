// SPDX-License-Identifier: Apache-2.0

package resourceslices_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

const (
	mi = topologytest.Mi
	gi = topologytest.Gi
)

func devices(t *testing.T, s topologytest.Spec, cfg zones.Config, taints ...resourceapi.DeviceTaint) []resourceapi.Device {
	t.Helper()
	if cfg.GroupBy == "" {
		cfg.GroupBy = zones.NUMANode
	}
	cfg.SharedMode, cfg.SharedMinCPUs = zones.PoolDynamic, 1
	divided, err := zones.Divide(s.Machine(), cfg)
	require.NoError(t, err)
	return resourceslices.Devices(divided.Zones, resourceslices.Options{PageSize: s.PageSize, Taints: taints})
}

// values returns capacities as users read them: value/step.
func values(d resourceapi.Device) map[string]string {
	out := make(map[string]string)
	for name, c := range d.Capacity {
		out[string(name)] = c.Value.String() + "/" + c.RequestPolicy.ValidRange.Step.String()
	}
	return out
}

func TestDevices(t *testing.T) {
	reserve0 := zones.Config{ReservedCPUs: contract.CPUs(0)}
	type device struct {
		name     string
		capacity map[string]string
	}
	for _, c := range []struct {
		name string
		spec topologytest.Spec
		cfg  zones.Config
		want []device
	}{
		{"A01, A02: T2", topologytest.T2(), reserve0, []device{
			{"numa-0", map[string]string{"cpu": "3/1", "memory": "13Gi/1Mi", "hugepages_2Mi": "1Gi/2Mi", "hugepages_1Gi": "2Gi/1Gi"}},
			{"numa-1", map[string]string{"cpu": "4/1", "memory": "13Gi/1Mi", "hugepages_2Mi": "1Gi/2Mi", "hugepages_1Gi": "2Gi/1Gi"}},
		}},
		{"A03: T6, memory only", topologytest.T6(), zones.Config{ReservedCPUs: contract.CPUs(0, 1, 4, 5)}, []device{
			{"numa-0", map[string]string{"memory": "13Gi/1Mi", "hugepages_2Mi": "1Gi/2Mi", "hugepages_1Gi": "2Gi/1Gi"}},
			{"numa-1", map[string]string{"cpu": "4/1", "memory": "13Gi/1Mi", "hugepages_2Mi": "1Gi/2Mi", "hugepages_1Gi": "2Gi/1Gi"}},
			{"numa-2", map[string]string{"memory": "64Gi/1Mi"}},
		}},
		{"A04: T7", topologytest.T7(), zones.Config{GroupBy: zones.Socket}, []device{
			{"socket-0", map[string]string{
				"cpu": "3/1", "memory": "47072Mi/1Mi",
				"hugepages_2Mi": "32Mi/2Mi", "hugepages_512Mi": "2Gi/512Mi", "hugepages_16Gi": "16Gi/16Gi",
			}},
			{"socket-1", map[string]string{
				"cpu": "4/1", "memory": "47072Mi/1Mi",
				"hugepages_2Mi": "32Mi/2Mi", "hugepages_512Mi": "2Gi/512Mi", "hugepages_16Gi": "16Gi/16Gi",
			}},
		}},
		{"A04: T8", topologytest.T8(), zones.Config{}, []device{
			{"numa-0", map[string]string{"cpu": "9/1", "memory": "32Gi/1Mi"}},
			{"numa-8", map[string]string{"cpu": "10/1", "memory": "32Gi/1Mi"}},
		}},
		{"whole cores", topologytest.T3(), zones.Config{WholeCores: true, GroupBy: zones.Machine}, []device{
			{"machine", map[string]string{"cpu": "6/2", "memory": "3584Mi/1Mi", "hugepages_2Mi": "512Mi/2Mi"}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []device
			for _, d := range devices(t, c.spec, c.cfg) {
				got = append(got, device{d.Name, values(d)})
				require.True(t, *d.AllowMultipleAllocations)
				for name, capacity := range d.Capacity {
					p := capacity.RequestPolicy
					require.True(t, p.Default.IsZero(), name)
					require.True(t, p.ValidRange.Min.IsZero(), name)
					// The API's rule for a step.
					require.LessOrEqual(t, p.ValidRange.Step.Cmp(capacity.Value), 0, name)
				}
				require.LessOrEqual(t, len(d.Capacity)+len(d.Attributes), resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAttributes(t *testing.T) {
	read := func(d resourceapi.Device) string {
		data, err := json.Marshal(d.Attributes)
		require.NoError(t, err)
		return string(data)
	}
	expander := topologytest.T6()
	expander.Nodes[2].DAX = topologytest.CXL
	expander.Nodes[2].Performance = topology.MemoryPerformance{ReadBandwidth: 60000, ReadLatency: 250}
	ds := devices(t, expander, zones.Config{})
	require.JSONEq(t, `{"resource.kubernetes.io/numaNode":{"int":1},"dra.net/numaNode":{"int":1},"dra.cpu/numaNodeID":{"int":1},
		"dra.cpumem/zone":{"string":"numanode"},"dra.cpumem/socketID":{"int":1},"dra.cpumem/numCPUs":{"int":4},
		"dra.cpumem/numCores":{"int":2},"dra.cpumem/cpuLayout":{"string":"2-3,6-7 core=cpu%4 l3=0"},
		"dra.cpumem/threadsPerCore":{"int":2},"dra.cpumem/smtEnabled":{"bool":true},"dra.cpumem/l3Caches":{"int":1},
		"dra.cpumem/distanceToNode0":{"int":21},"dra.cpumem/distanceToNode1":{"int":10},"dra.cpumem/distanceToNode2":{"int":21},
		"dra.cpumem/memoryType":{"string":"dram"},"dra.cpumem/cpuType":{"string":"standard"}}`, read(ds[1]))
	require.JSONEq(t, `{"resource.kubernetes.io/numaNode":{"int":2},"dra.net/numaNode":{"int":2},"dra.cpu/numaNodeID":{"int":2},
		"dra.cpumem/distanceToNode0":{"int":32},"dra.cpumem/distanceToNode1":{"int":21},"dra.cpumem/distanceToNode2":{"int":10},
		"dra.cpumem/nearestCPUNode":{"int":1},"dra.cpumem/nearestCPUDistance":{"int":21},
		"dra.cpumem/memoryReadBandwidth":{"int":60000},"dra.cpumem/memoryReadLatency":{"int":250},
		"dra.cpumem/zone":{"string":"numanode"},"dra.cpumem/memoryType":{"string":"cxl"}}`, read(ds[2]))
	require.JSONEq(t, `{"dra.cpumem/zone":{"string":"machine"},"dra.cpumem/numCPUs":{"int":512},"dra.cpumem/numCores":{"int":256},
		"dra.cpumem/threadsPerCore":{"int":2},"dra.cpumem/smtEnabled":{"bool":true},"dra.cpumem/l3Caches":{"int":32},
		"dra.cpumem/memoryType":{"string":"dram"},"dra.cpumem/cpuType":{"string":"standard"},
		"dra.cpumem/cpuLayout":{"string":"0-511 core=cpu%256 l3=core/8"}}`,
		read(devices(t, topologytest.T4(), zones.Config{GroupBy: zones.Machine})[0]))
}

// A05: the same machine gives the same bytes; less memory changes only its
// amount.
func TestStable(t *testing.T) {
	read := func(s topologytest.Spec) string {
		data, err := json.Marshal(devices(t, s, zones.Config{}))
		require.NoError(t, err)
		return string(data)
	}
	require.Equal(t, read(topologytest.T4()), read(topologytest.T4()))

	less := topologytest.T2()
	less.Nodes[1].Memory -= 2 * mi
	was, is := devices(t, topologytest.T2(), zones.Config{}), devices(t, less, zones.Config{})
	require.Equal(t, was[0], is[0])
	require.Equal(t, was[1].Name, is[1].Name)
	require.Equal(t, was[1].Attributes, is[1].Attributes)
	for _, name := range slices.Sorted(maps.Keys(was[1].Capacity)) {
		a, b := was[1].Capacity[name].Value, is[1].Capacity[name].Value
		require.Equal(t, name == "memory", a.Cmp(b) != 0, name)
	}
}

func TestTaints(t *testing.T) {
	taint := resourceapi.DeviceTaint{Key: "dra.cpumem/actuator", Value: "dead", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	for _, d := range devices(t, topologytest.T6(), zones.Config{}, taint) {
		require.Equal(t, []resourceapi.DeviceTaint{taint}, d.Taints)
	}
}

func TestDriverResources(t *testing.T) {
	empty := resourceslices.DriverResources("worker", nil)
	require.Len(t, empty.Pools["worker"].Slices, 1)
	require.Empty(t, empty.Pools["worker"].Slices[0].Devices)

	one := resourceslices.DriverResources("worker", devices(t, topologytest.T4(), zones.Config{}))
	require.Len(t, one.Pools, 1)
	require.Len(t, one.Pools["worker"].Slices, 1)
	require.Len(t, one.Pools["worker"].Slices[0].Devices, 8)

	many := resourceslices.DriverResources("worker", make([]resourceapi.Device, 130))
	require.Len(t, many.Pools["worker"].Slices, 3)
}
