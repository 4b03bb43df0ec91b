// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

// kind is what a pod asks for.
type kind string

const (
	noClaim    kind = "no claim"
	zone       kind = "one zone"
	bare       kind = "one zone, without attributes"
	selected   kind = "one zone, with a selector"
	twoDevices kind = "two devices, matchAttribute"
)

// spec is one measurement: pods of one kind that wait when the scheduler starts.
type spec struct {
	kind         kind
	nodes, zones int // zones are of each node
	allocated    int // claims that have an allocation at the start, in the cluster
}

func (s spec) String() string {
	return fmt.Sprintf("%s, %d nodes, %d zones each, %d claims", s.kind, s.nodes, s.zones, s.allocated)
}

// specs returns the measurements: all kinds by nodes, then zones and claims for the kind that users write.
func specs() []spec {
	var all []spec
	for _, nodes := range []int{100, 500, 2000} {
		for _, k := range []kind{noClaim, zone, bare, selected, twoDevices} {
			all = append(all, spec{k, nodes, 2, 0})
		}
	}
	for _, zones := range []int{1, 8, 32, 64} {
		all = append(all, spec{zone, 500, zones, 0})
	}
	for _, allocated := range []int{200, 1000, 5000} {
		all = append(all, spec{zone, 500, 2, allocated})
	}
	return all
}

// cpuDriver and memoryDriver publish the two halves of each zone, as separate drivers for CPUs and for memory do.
const (
	cpuDriver    = "cpu.example.com"
	memoryDriver = "memory.example.com"
)

// devices returns what each node publishes, by driver.
func (s spec) devices() (map[string][]resourceapi.Device, error) {
	whole, err := hollow.Devices(s.zones)
	if s.kind == bare {
		for i := range whole {
			whole[i].Attributes = nil
		}
	}
	if err != nil || s.kind != twoDevices {
		return map[string][]resourceapi.Device{hollow.Driver: whole}, err
	}
	half := func(keep func(resourceapi.QualifiedName) bool) []resourceapi.Device {
		out := make([]resourceapi.Device, 0, len(whole))
		for _, d := range whole {
			d.Capacity = maps.Clone(d.Capacity)
			maps.DeleteFunc(d.Capacity, func(name resourceapi.QualifiedName, _ resourceapi.DeviceCapacity) bool { return !keep(name) })
			out = append(out, d)
		}
		return out
	}
	return map[string][]resourceapi.Device{
		cpuDriver:    half(func(name resourceapi.QualifiedName) bool { return name == "cpu" }),
		memoryDriver: half(func(name resourceapi.QualifiedName) bool { return name != "cpu" }),
	}, nil
}

// classes are the DeviceClasses of all kinds: the chart's, and one for each half.
func classes() []*resourceapi.DeviceClass {
	class := func(name, expression string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourceapi.DeviceClassSpec{
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: expression}}},
			},
		}
	}
	of := func(driver string) string { return fmt.Sprintf("device.driver == %q", driver) }
	return []*resourceapi.DeviceClass{
		class(hollow.Driver, resourceslices.ClassSelector(topology.MemoryDRAM)),
		class(cpuDriver, of(cpuDriver)),
		class(memoryDriver, of(memoryDriver)),
	}
}

func amounts(cpu, memory, hugepages string) map[resourceapi.QualifiedName]resource.Quantity {
	all := map[resourceapi.QualifiedName]resource.Quantity{}
	for name, amount := range map[resourceapi.QualifiedName]string{"cpu": cpu, "memory": memory, "hugepages_2Mi": hugepages} {
		if amount != "" {
			all[name] = resource.MustParse(amount)
		}
	}
	return all
}

func request(name, class string, of map[resourceapi.QualifiedName]resource.Quantity, selectors ...string) resourceapi.DeviceRequest {
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: of},
	}
	for _, s := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{Expression: s}})
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: exactly}
}

// requested are the amounts of each pod.
const (
	requestedCPU       = "2"
	requestedMemory    = "1Gi"
	requestedHugepages = "64Mi"
)

// claim returns the claim of a pod, nil for pods without one.
func (s spec) claim(name string) *resourceapi.ResourceClaim {
	all := amounts(requestedCPU, requestedMemory, requestedHugepages)
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	devices := &c.Spec.Devices
	switch s.kind {
	case zone, bare:
		devices.Requests = []resourceapi.DeviceRequest{request("zone", hollow.Driver, all)}
	case selected:
		devices.Requests = []resourceapi.DeviceRequest{request("zone", hollow.Driver, all,
			`device.attributes["dra.cpumem"].numCores >= 8 && device.attributes["dra.cpumem"].threadsPerCore == 2`)}
	case twoDevices:
		node := resourceapi.FullyQualifiedName("resource.kubernetes.io/numaNode")
		devices.Requests = []resourceapi.DeviceRequest{
			request("cpu", cpuDriver, amounts(requestedCPU, "", "")),
			request("memory", memoryDriver, amounts("", requestedMemory, requestedHugepages)),
		}
		devices.Constraints = []resourceapi.DeviceConstraint{{Requests: []string{"cpu", "memory"}, MatchAttribute: &node}}
	default:
		return nil
	}
	return c
}

// pod returns a pod. Pods without a claim ask for CPU and memory in their spec.
func (s spec) pod(name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}},
	}
	app := &p.Spec.Containers[0]
	if s.kind == noClaim {
		app.Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(requestedCPU), corev1.ResourceMemory: resource.MustParse(requestedMemory),
		}
		return p
	}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "zone", ResourceClaimName: &name}}
	app.Resources.Claims = []corev1.ResourceClaim{{Name: "zone"}}
	return p
}

// allocation is what the scheduler would write for the i-th claim that is allocated at the start: a CPU and 64Mi, one zone
// after the other.
func (s spec) allocation(i int) *resourceapi.AllocationResult {
	share := types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
	node := hollow.Name(i % s.nodes)
	return &resourceapi.AllocationResult{
		Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
			Request: "zone", Driver: hollow.Driver, Pool: node, Device: fmt.Sprintf("numa-%d", i/s.nodes%s.zones),
			ShareID: &share, ConsumedCapacity: amounts("1", "64Mi", "0"),
		}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}},
		}}},
	}
}
