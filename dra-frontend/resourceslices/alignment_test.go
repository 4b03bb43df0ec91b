// SPDX-License-Identifier: Apache-2.0

package resourceslices_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/structured"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// withRoots is T2 with PCIe roots: two on node 0, one on node 1.
func withRoots() topology.Machine {
	m := topologytest.T2().Machine()
	m.NUMANodes[0].PCIeRoots = []string{"pci0000:00", "pci0000:20"}
	m.NUMANodes[1].PCIeRoots = []string{"pci0000:10"}
	return m
}

func published(t *testing.T, m topology.Machine, by zones.Kind, o resourceslices.Options) map[string]map[string]any {
	t.Helper()
	divided, err := zones.Divide(m, zones.Config{GroupBy: by, SharedMode: zones.PoolDynamic, SharedMinCPUs: 1})
	require.NoError(t, err)
	o.PageSize = m.PageSize
	out := make(map[string]map[string]any)
	for _, d := range resourceslices.Devices(divided.Zones, o) {
		out[d.Name] = make(map[string]any)
		for _, name := range []resourceapi.QualifiedName{
			deviceattribute.StandardDeviceAttributeNUMANode, deviceattribute.StandardDeviceAttributePCIeRoot,
			"dra.net/numaNode", "dra.cpu/numaNodeID",
		} {
			switch a, found := d.Attributes[name]; {
			case !found:
			case a.IntValue != nil:
				out[d.Name][string(name)] = int(*a.IntValue)
			case a.IntValues != nil:
				out[d.Name][string(name)] = a.IntValues
			case a.StringValues != nil:
				out[d.Name][string(name)] = a.StringValues
			}
		}
	}
	return out
}

func TestAlignmentAttributes(t *testing.T) {
	const node, root = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"
	ofNode := func(id int, more map[string]any) map[string]any {
		out := map[string]any{node: id, "dra.net/numaNode": id, "dra.cpu/numaNodeID": id}
		for name, value := range more {
			out[name] = value
		}
		return out
	}
	list := resourceslices.Options{NUMANodeList: true}
	both := resourceslices.Options{NUMANodeList: true, PCIeRoots: true}
	for name, c := range map[string]struct {
		by   zones.Kind
		o    resourceslices.Options
		want map[string]map[string]any
	}{
		"scalar": {zones.NUMANode, resourceslices.Options{}, map[string]map[string]any{
			"numa-0": ofNode(0, nil), "numa-1": ofNode(1, nil)}},
		"scalar, of zones of several nodes": {zones.Machine, resourceslices.Options{}, map[string]map[string]any{"machine": {}}},
		"list: the old names stay": {zones.NUMANode, list, map[string]map[string]any{
			"numa-0": ofNode(0, map[string]any{node: []int64{0}}), "numa-1": ofNode(1, map[string]any{node: []int64{1}})}},
		"list, of zones of several nodes": {zones.Machine, list, map[string]map[string]any{"machine": {node: []int64{0, 1}}}},
		"roots": {zones.NUMANode, resourceslices.Options{PCIeRoots: true}, map[string]map[string]any{
			"numa-0": ofNode(0, map[string]any{root: []string{"pci0000:00", "pci0000:20"}}),
			"numa-1": ofNode(1, map[string]any{root: []string{"pci0000:10"}})}},
		"roots of zones of several nodes": {zones.Machine, both, map[string]map[string]any{
			"machine": {node: []int64{0, 1}, root: []string{"pci0000:00", "pci0000:10", "pci0000:20"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, published(t, withRoots(), c.by, c.o))
		})
	}
}

// The API server refuses a slice with a device of more values.
func TestMoreNodesThanFit(t *testing.T) {
	m := topologytest.T2().Machine()
	for id := len(m.NUMANodes); id < resourceapi.ResourceSliceMaxAttributeValuesPerDevice; id++ {
		node := m.NUMANodes[0]
		// Nodes without CPUs are zones of their own; CPUs of other machines do.
		node.ID, node.CPUs = id, contract.CPUs(1000+id)
		m.NUMANodes = append(m.NUMANodes, node)
	}
	devices := published(t, m, zones.Machine, resourceslices.Options{NUMANodeList: true})
	require.Equal(t, map[string]any{}, devices["machine"])
}

func TestMoreRootsThanFit(t *testing.T) {
	m := topologytest.T2().Machine()
	for i := range resourceapi.ResourceSliceMaxAttributeValuesPerDevice {
		root := fmt.Sprintf("pci0000:%02x", i)
		m.NUMANodes[0].PCIeRoots = append(m.NUMANodes[0].PCIeRoots, root)
		if i < 16 {
			m.NUMANodes[1].PCIeRoots = append(m.NUMANodes[1].PCIeRoots, root)
		}
	}
	devices := published(t, m, zones.NUMANode, resourceslices.Options{PCIeRoots: true})
	require.NotContains(t, devices["numa-0"], "resource.kubernetes.io/pcieRoot")
	require.Len(t, devices["numa-1"]["resource.kubernetes.io/pcieRoot"], 16)
}

const otherDriver = "nic.example.com"

// aligned allocates a CPU of a zone and a device of another driver that must agree
// in the attribute, and returns the zone, empty if no zone fits. The list type needs
// the feature gate.
func (s *scheduler) aligned(t *testing.T, name resourceapi.FullyQualifiedName, value resourceapi.DeviceAttribute) string {
	t.Helper()
	s.slices = append(s.slices, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "nic-worker"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: otherDriver, NodeName: new("worker"),
			Pool: resourceapi.ResourcePool{Name: "worker", Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{
				Name: "nic-0", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{resourceapi.QualifiedName(name): value},
			}},
		},
	})
	one := func(request, class string) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Name: request, Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}}
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "aligned", UID: "aligned"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests:    []resourceapi.DeviceRequest{one("zone", driver), one("nic", otherDriver)},
			Constraints: []resourceapi.DeviceConstraint{{MatchAttribute: &name}},
		}},
	}
	results := s.results(t, claim, structured.Features{ConsumableCapacity: true, DeviceTaints: true, ListTypeAttributes: true})
	if len(results) == 0 {
		return ""
	}
	require.Len(t, results, 2)
	return results[0].Device
}

// A claim of a zone and of another driver's device that must agree in an attribute,
// as the scheduler allocates it.
func TestAllocatorAligns(t *testing.T) {
	number := func(n int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValue: &n} }
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	numbers := func(n ...int64) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{IntValues: n} }
	const node, root = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"
	for name, c := range map[string]struct {
		by        zones.Kind
		o         resourceslices.Options
		attribute resourceapi.FullyQualifiedName
		device    resourceapi.DeviceAttribute
		want      string // zone, empty if no zone fits
	}{
		"scalar beside scalar":      {zones.NUMANode, resourceslices.Options{}, node, number(1), "numa-1"},
		"scalar beside list":        {zones.NUMANode, resourceslices.Options{}, node, numbers(1), "numa-1"},
		"list beside scalar":        {zones.NUMANode, resourceslices.Options{NUMANodeList: true}, node, number(1), "numa-1"},
		"list beside list":          {zones.NUMANode, resourceslices.Options{NUMANodeList: true}, node, numbers(1), "numa-1"},
		"the machine beside a list": {zones.Machine, resourceslices.Options{NUMANodeList: true}, node, numbers(1), "machine"},
		"a node without a zone":     {zones.NUMANode, resourceslices.Options{NUMANodeList: true}, node, number(7), ""},
		"an old name":               {zones.NUMANode, resourceslices.Options{NUMANodeList: true}, "dra.net/numaNode", number(1), "numa-1"},
		"root":                      {zones.NUMANode, resourceslices.Options{PCIeRoots: true}, root, text("pci0000:10"), "numa-1"},
		"root of no zone":           {zones.NUMANode, resourceslices.Options{PCIeRoots: true}, root, text("pci0000:ff"), ""},
		"roots are not published":   {zones.NUMANode, resourceslices.Options{}, root, text("pci0000:10"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := withRoots()
			divided, err := zones.Divide(m, zones.Config{GroupBy: c.by, SharedMode: zones.PoolDynamic, SharedMinCPUs: 1})
			require.NoError(t, err)
			c.o.PageSize = m.PageSize
			s := newScheduler(resourceslices.Devices(divided.Zones, c.o))
			require.Equal(t, c.want, s.aligned(t, c.attribute, c.device))
		})
	}
}
