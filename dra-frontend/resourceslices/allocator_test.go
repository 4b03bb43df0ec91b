// SPDX-License-Identifier: Apache-2.0

package resourceslices_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

const driver = "dra.cpumem"

// testingT is implemented by *testing.T and *rapid.T.
type testingT interface {
	require.TestingT
	Context() context.Context
}

// scheduler is the real allocator over the slices of one node. It keeps its
// allocations, as the scheduler reads them from claims.
type scheduler struct {
	slices []*resourceapi.ResourceSlice
	state  structured.AllocatedState
	claims int
}

// chartClasses are the chart's DeviceClasses: the driver's own, and a class for
// each kind of memory, as dra.cpumem-cxl.
type chartClasses struct{}

func (chartClasses) Get(name string) (*resourceapi.DeviceClass, error) {
	if name == otherDriver {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
				Expression: fmt.Sprintf("device.driver == %q", name),
			}}},
		}}, nil
	}
	kind := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, driver), "-"), string(topology.MemoryDRAM))
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: resourceslices.ClassSelector(topology.MemoryType(kind)),
		}}},
	}}, nil
}

func (c chartClasses) List() ([]*resourceapi.DeviceClass, error) {
	class, err := c.Get(driver)
	return []*resourceapi.DeviceClass{class}, err
}

func newScheduler(devices []resourceapi.Device) *scheduler {
	s := &scheduler{state: structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}}
	for name, pool := range resourceslices.DriverResources("worker", devices).Pools {
		for i, slice := range pool.Slices {
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%d-worker", i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: driver, NodeName: new("worker"), Devices: slice.Devices,
					Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				},
			})
		}
	}
	return s
}

// allocate returns nil if the claim does not fit, or if no device is selected.
func (s *scheduler) allocate(
	t testingT, requests map[resourceapi.QualifiedName]resource.Quantity, selectors ...string,
) *resourceapi.DeviceRequestAllocationResult {
	return s.allocateOf(t, driver, requests, selectors...)
}

// allocateOf allocates from a class.
func (s *scheduler) allocateOf(
	t testingT, class string, requests map[resourceapi.QualifiedName]resource.Quantity, selectors ...string,
) *resourceapi.DeviceRequestAllocationResult {
	s.claims++
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: types.UID(fmt.Sprintf("claim-%d", s.claims))},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "zone",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
				Capacity: &resourceapi.CapacityRequirements{Requests: requests},
			},
		}}}},
	}
	for _, expression := range selectors {
		exactly := claim.Spec.Devices.Requests[0].Exactly
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{
			CEL: &resourceapi.CELDeviceSelector{Expression: expression},
		})
	}
	results := s.results(t, claim, structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
	})
	if len(results) == 0 {
		return nil
	}
	r := results[0]
	id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
	s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
	s.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	return &r
}

// results returns the devices of the claim, none if it does not fit.
func (s *scheduler) results(
	t testingT, claim *resourceapi.ResourceClaim, features structured.Features,
) []resourceapi.DeviceRequestAllocationResult {
	allocator, err := structured.NewAllocator(t.Context(), features, s.state, chartClasses{}, s.slices,
		cel.NewCache(8, cel.Features{EnableConsumableCapacity: true}))
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	allocated, err := allocator.Allocate(t.Context(), node, []*resourceapi.ResourceClaim{claim})
	require.NoError(t, err)
	if len(allocated) == 0 {
		return nil
	}
	return allocated[0].Devices.Results
}

func consumed(r *resourceapi.DeviceRequestAllocationResult) map[string]string {
	out := make(map[string]string)
	for name, q := range r.ConsumedCapacity {
		out[string(name)] = q.String()
	}
	return out
}

func TestAllocatorTakesTheSlices(t *testing.T) {
	s := newScheduler(devices(t, topologytest.T2(), zones.Config{ReservedCPUs: contract.CPUs(0)}))
	all := map[resourceapi.QualifiedName]resource.Quantity{
		"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"), "hugepages_2Mi": resource.MustParse("64Mi"),
	}
	r := s.allocate(t, all)
	require.NotNil(t, r)
	require.Equal(t, "numa-0", r.Device)
	require.NotNil(t, r.ShareID)
	require.Equal(t, map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "64Mi", "hugepages_1Gi": "0"}, consumed(r))

	r = s.allocate(t, all)
	require.Equal(t, "numa-1", r.Device, "one CPU is left on the first zone")

	r = s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1000")})
	require.Equal(t, map[string]string{"cpu": "0", "memory": "1Mi", "hugepages_2Mi": "0", "hugepages_1Gi": "0"}, consumed(r),
		"rounded to a step")

	require.Nil(t, s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("3")}))
	require.Nil(t, s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{
		"hugepages_16Gi": resource.MustParse("16Gi"),
	}), "no such capacity")
}

// docs/concepts/resource-model.md: the scheduler rounds fractions up, so that the driver
// never sees a fraction.
func TestAllocatorRoundsUpToTheStep(t *testing.T) {
	for asked, want := range map[string]map[string]string{
		"500m":  {"cpu": "1", "memory": "1Mi"},
		"1500m": {"cpu": "2", "memory": "1Mi"},
		"2":     {"cpu": "2", "memory": "1Mi"},
	} {
		s := newScheduler(devices(t, topologytest.T2(), zones.Config{}))
		r := s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{
			"cpu": resource.MustParse(asked), "memory": resource.MustParse("100Ki"),
		})
		require.NotNil(t, r, asked)
		for name, amount := range want {
			require.Equal(t, amount, consumed(r)[name], "%s of a request of %s", name, asked)
		}
	}
}

func TestAllocatorRoundsToWholeCores(t *testing.T) {
	s := newScheduler(devices(t, topologytest.T2(), zones.Config{WholeCores: true}))
	r := s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("1")})
	require.Equal(t, "2", consumed(r)["cpu"])
}

func TestAllocatorKeepsOffTaintedDevices(t *testing.T) {
	taint := resourceapi.DeviceTaint{Key: "dra.cpumem/actuator", Effect: resourceapi.DeviceTaintEffectNoSchedule}
	s := newScheduler(devices(t, topologytest.T2(), zones.Config{}, taint))
	require.Nil(t, s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("1")}))
}

// The selectors are from docs/reference/machines.md.
func TestAllocatorSelectsByDistanceAndMemory(t *testing.T) {
	expander := topologytest.T6()
	expander.Nodes[2].DAX = topologytest.CXL
	const all = "true"
	for _, c := range []struct {
		class, selector string
		spec            topologytest.Spec
		want            string
	}{
		{driver, `device.attributes["dra.cpumem"].distanceToNode1 <= 20`, expander, "numa-1"},
		{driver + "-cxl", all, expander, "numa-2"},
		{driver + "-cxl", all, topologytest.T6(), ""},
		{driver + "-unknown", all, topologytest.T6(), "numa-2"},
		{driver + "-hbm", all, expander, ""},
		{driver + "-cxl", `device.attributes["dra.cpumem"].?nearestCPUNode.orValue(-1) == 1`, expander, "numa-2"},
		{driver, `device.attributes["dra.cpumem"].?distanceToNode7.orValue(255) <= 20`, expander, ""},
		{driver, `device.attributes["dra.cpumem"].?distanceToNode7.orValue(255) <= 20`, topologytest.T4(), "numa-7"},
	} {
		s := newScheduler(devices(t, c.spec, zones.Config{}))
		r := s.allocateOf(t, c.class, map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}, c.selector)
		got := ""
		if r != nil {
			got = r.Device
		}
		require.Equal(t, c.want, got, "%s: %s", c.class, c.selector)
	}
}

// A75: the driver's own class takes zones with DRAM or without memory, and no
// other zones, with each groupBy.
func TestClassSelectsDRAM(t *testing.T) {
	expander := topologytest.T6()
	expander.Nodes[2].DAX = topologytest.CXL
	request := func(capacity resourceapi.QualifiedName, amount string) map[resourceapi.QualifiedName]resource.Quantity {
		return map[resourceapi.QualifiedName]resource.Quantity{capacity: resource.MustParse(amount)}
	}
	for name, c := range map[string]struct {
		spec topologytest.Spec
		cfg  zones.Config
		// memory and cpu count the claims of 10Gi and of one CPU that each zone
		// gets until no claim fits.
		memory, cpu map[string]int
	}{
		"expander": {
			spec:   expander,
			cfg:    zones.Config{},
			memory: map[string]int{"numa-0": 1, "numa-1": 1},
			cpu:    map[string]int{"numa-0": 3, "numa-1": 4},
		},
		"expander, sockets": {
			spec:   expander,
			cfg:    zones.Config{GroupBy: zones.Socket},
			memory: map[string]int{"socket-0": 1, "socket-1": 1},
			cpu:    map[string]int{"socket-0": 3, "socket-1": 4},
		},
		"expander, machine": {
			spec:   expander,
			cfg:    zones.Config{GroupBy: zones.Machine},
			memory: map[string]int{"machine": 2},
			cpu:    map[string]int{"machine": 7},
		},
		"unknown": {
			spec:   topologytest.T6(),
			cfg:    zones.Config{},
			memory: map[string]int{"numa-0": 1, "numa-1": 1},
			cpu:    map[string]int{"numa-0": 3, "numa-1": 4},
		},
		"zones without memory": {
			spec:   expander,
			cfg:    zones.Config{MemoryTypes: []topology.MemoryType{topology.MemoryCXL}},
			memory: map[string]int{},
			cpu:    map[string]int{"numa-0": 3, "numa-1": 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			take := func(requests map[resourceapi.QualifiedName]resource.Quantity) map[string]int {
				s := newScheduler(devices(t, c.spec, c.cfg))
				got := make(map[string]int)
				for r := s.allocate(t, requests); r != nil; r = s.allocate(t, requests) {
					got[r.Device]++
				}
				return got
			}
			require.Equal(t, c.memory, take(request("memory", "10Gi")))
			require.Equal(t, c.cpu, take(request("cpu", "1")))
		})
	}
}

// A09: with minCPUs 2 no order of claims gets the last two CPUs.
func TestAllocatorLeavesTheSharedPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		if len(m.CPUs) < 2 {
			return
		}
		divided, err := zones.Divide(m, zones.Config{GroupBy: zones.NUMANode, SharedMode: zones.PoolDynamic, SharedMinCPUs: 2})
		require.NoError(t, err)
		zs, pool := divided.Zones, divided.Pool
		s := newScheduler(resourceslices.Devices(zs, resourceslices.Options{PageSize: m.PageSize}))
		taken := int64(0)
		for _, n := range append(rapid.SliceOfN(rapid.Int64Range(1, 8), 0, 8).Draw(t, "claims"), make([]int64, pool.CPUs.Size())...) {
			n = max(1, n) // at the end, one by one until nothing is left
			if r := s.allocate(t, map[resourceapi.QualifiedName]resource.Quantity{
				"cpu": *resource.NewQuantity(n, resource.DecimalSI),
			}); r != nil {
				q := r.ConsumedCapacity["cpu"]
				taken += q.Value()
			} else if n == 1 {
				break
			}
		}
		require.Equal(t, int64(pool.CPUs.Size()-2), taken)
	})
}
