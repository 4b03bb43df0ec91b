// SPDX-License-Identifier: Apache-2.0

// Package resourceslices turns zones into the API objects that the scheduler
// allocates from: one device for each zone, with several capacities, so that
// one request gets CPUs, memory and hugepages of the same zone. It is the end
// of the publishing flow (topology, zones, resourceslices). The devices' names
// come back in the allocation of every claim.
//
// Names, order and content depend on the arguments alone (I8).
package resourceslices

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Attributes of a device, besides the standard NUMA node.
const (
	domain = contract.Vendor + "/"

	AttributeZone           resourceapi.QualifiedName = domain + "zone"
	AttributeSocketID       resourceapi.QualifiedName = domain + "socketID"
	AttributeNumCPUs        resourceapi.QualifiedName = domain + "numCPUs"
	AttributeNumCores       resourceapi.QualifiedName = domain + "numCores"
	AttributeThreadsPerCore resourceapi.QualifiedName = domain + "threadsPerCore"
	AttributeSMTEnabled     resourceapi.QualifiedName = domain + "smtEnabled"
	AttributeL3Caches       resourceapi.QualifiedName = domain + "l3Caches"
	AttributeMemoryType     resourceapi.QualifiedName = domain + "memoryType"
	AttributeCPUType        resourceapi.QualifiedName = domain + "cpuType"
	// AttributeCPULayout is a [cpulayout.Layout], where there is one.
	AttributeCPULayout resourceapi.QualifiedName = domain + "cpuLayout"

	// The zone's CPUs that are left out, if there are any: CPUs of isolcpus,
	// and CPUs that no pod can have.
	AttributeNumIsolatedCPUs   resourceapi.QualifiedName = domain + "numIsolatedCPUs"
	AttributeNumRestrictedCPUs resourceapi.QualifiedName = domain + "numRestrictedCPUs"

	// Of NUMA zones: distances that firmware reports, 10 for the zone's own
	// node. A node's id follows the prefix.
	AttributeDistancePrefix     resourceapi.QualifiedName = domain + "distanceToNode"
	AttributeNearestCPUNode     resourceapi.QualifiedName = domain + "nearestCPUNode"
	AttributeNearestCPUDistance resourceapi.QualifiedName = domain + "nearestCPUDistance"
	// In MB/s and in nanoseconds.
	AttributeReadBandwidth resourceapi.QualifiedName = domain + "memoryReadBandwidth"
	AttributeReadLatency   resourceapi.QualifiedName = domain + "memoryReadLatency"

	// Other drivers' names for the id of the NUMA node, for claims that align
	// with devices of these drivers.
	attributeNetNUMANode resourceapi.QualifiedName = "dra.net/numaNode"
	attributeCPUNUMANode resourceapi.QualifiedName = "dra.cpu/numaNodeID"
)

// ClassSelector returns the CEL expression of the chart's DeviceClass for a
// kind of memory. The class of DRAM, the default, takes zones without memory,
// too.
func ClassSelector(kind topology.MemoryType) string {
	return fmt.Sprintf(`device.driver == %q && device.attributes[%[1]q].?memoryType.orValue(%q) == %q`,
		contract.Vendor, topology.MemoryDRAM, kind)
}

// maxDevices is the API's limit of devices in a slice with taints. It holds for
// all slices, so that a taint moves no device to another slice.
const maxDevices = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures

// maxDistances keeps a device within the API's limit of attributes and
// capacities. Machines with more nodes publish only the nearest CPUs: a
// selector on distances that only some nodes publish would be a trap.
const maxDistances = 8

// maxValues is the API's limit of values of a device's attributes. A zone with more
// NUMA nodes or PCIe roots than fit publishes none of them: with a part of them, a
// claim that needs another one stays pending without a visible reason.
const maxValues = resourceapi.ResourceSliceMaxAttributeValuesPerDevice

// Options apply to all devices.
type Options struct {
	// PageSize is the base page size in bytes.
	PageSize int64
	// Taints keep new claims off all devices of the node.
	Taints []resourceapi.DeviceTaint
	// NodeAllocatable has the scheduler count claims against the node's
	// allocatable amounts.
	NodeAllocatable bool
	// NUMANodeList publishes the standard NUMA node as a list, for zones of
	// several nodes as well.
	NUMANodeList bool
	// PCIeRoots publishes the zone's PCIe roots, which is a list.
	PCIeRoots bool
}

// OptionsOf returns what the configuration says about devices. pageSize is the
// machine's base page size in bytes.
func OptionsOf(c config.Config, pageSize int64, taints []resourceapi.DeviceTaint) Options {
	return Options{
		PageSize: pageSize, Taints: taints, NodeAllocatable: c.NodeAllocatable,
		NUMANodeList: c.NUMANodeForm == config.NUMANodeList, PCIeRoots: c.PublishPCIeRoots,
	}
}

// Devices returns a device for each zone, in their order.
func Devices(zs []zones.Zone, o Options) []resourceapi.Device {
	devices := make([]resourceapi.Device, 0, len(zs))
	for _, z := range zs {
		device := resourceapi.Device{
			Name:                     z.Name,
			Attributes:               attributes(z, o),
			Capacity:                 capacities(z, o.PageSize),
			Taints:                   slices.Clone(o.Taints),
			AllowMultipleAllocations: new(true),
		}
		if o.NodeAllocatable {
			device.NodeAllocatableResources = nodeAllocatable(device.Capacity)
		}
		devices = append(devices, device)
	}
	return devices
}

// DriverResources puts the devices into one pool named after the node. Without
// devices the pool has one empty slice, which shows that the driver runs.
func DriverResources(nodeName string, devices []resourceapi.Device) resourceslice.DriverResources {
	pool := resourceslice.Pool{}
	for chunk := range slices.Chunk(devices, maxDevices) {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: chunk})
	}
	if len(pool.Slices) == 0 {
		pool.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{nodeName: pool}}
}

// capacities leaves out amounts of less than a step: the API refuses a step
// larger than the value.
func capacities(z zones.Zone, pageSize int64) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	out := make(map[resourceapi.QualifiedName]resourceapi.DeviceCapacity)
	add := func(name resourceapi.QualifiedName, value, step int64, format resource.Format) {
		if value >= step {
			out[name] = capacity(value, step, format)
		}
	}
	add(zones.CapacityCPU, int64(z.CPUCapacity), int64(z.CPUStep), resource.DecimalSI)
	add(zones.CapacityMemory, z.Memory, zones.MemoryStep(pageSize), resource.BinarySI)
	for size, pages := range z.Hugepages {
		add(zones.CapacityHugepages(size), size*pages, size, resource.BinarySI)
	}
	return out
}

// capacity always has a policy. Without a policy, a request that does not name
// the capacity would take all of it.
func capacity(value, step int64, format resource.Format) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *resource.NewQuantity(value, format),
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default: resource.NewQuantity(0, format),
			ValidRange: &resourceapi.CapacityRequestPolicyRange{
				Min:  resource.NewQuantity(0, format),
				Step: resource.NewQuantity(step, format),
			},
		},
	}
}

func attributes(z zones.Zone, o Options) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	out := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		AttributeZone: text(string(z.Kind)),
	}
	if z.MemoryType != "" {
		out[AttributeMemoryType] = text(string(z.MemoryType))
	}
	if z.Kind == zones.NUMANode {
		for _, name := range []resourceapi.QualifiedName{
			deviceattribute.StandardDeviceAttributeNUMANode, attributeNetNUMANode, attributeCPUNUMANode,
		} {
			out[name] = number(z.ID)
		}
	}
	if z.SocketID >= 0 {
		out[AttributeSocketID] = number(z.SocketID)
	}
	if z.NumCPUs > 0 {
		maps.Copy(out, map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			AttributeNumCPUs:        number(z.NumCPUs),
			AttributeNumCores:       number(z.NumCores),
			AttributeThreadsPerCore: number(z.ThreadsPerCore),
			AttributeSMTEnabled:     {BoolValue: new(z.SMTEnabled())},
			AttributeL3Caches:       number(z.L3Caches),
			AttributeCPUType:        text(string(z.CPUType)),
		})
	}
	if z.Layout != (cpulayout.Layout{}) {
		out[AttributeCPULayout] = text(z.Layout.String())
	}
	if z.Isolated > 0 {
		out[AttributeNumIsolatedCPUs] = number(z.Isolated)
	}
	if z.Restricted > 0 {
		out[AttributeNumRestrictedCPUs] = number(z.Restricted)
	}
	if len(z.Distances) <= maxDistances {
		for node, distance := range z.Distances {
			out[AttributeDistancePrefix+resourceapi.QualifiedName(strconv.Itoa(node))] = number(distance)
		}
	}
	if z.NearestCPUNode >= 0 {
		out[AttributeNearestCPUNode] = number(z.NearestCPUNode)
		out[AttributeNearestCPUDistance] = number(z.NearestCPUDistance)
	}
	if p := z.Performance; p.ReadBandwidth > 0 {
		out[AttributeReadBandwidth] = number(int(p.ReadBandwidth))
	}
	if p := z.Performance; p.ReadLatency > 0 {
		out[AttributeReadLatency] = number(int(p.ReadLatency))
	}
	// The nodes of the zone alone, without their neighbours: the zone's memory is
	// local to a device that shares a node with the zone.
	if nodes := z.NUMANodes.List(); o.NUMANodeList && values(out)+len(nodes) <= maxValues {
		out[deviceattribute.StandardDeviceAttributeNUMANode] = numbers(nodes)
	}
	if o.PCIeRoots && len(z.PCIeRoots) > 0 && values(out)+len(z.PCIeRoots) <= maxValues {
		out[deviceattribute.StandardDeviceAttributePCIeRoot] = resourceapi.DeviceAttribute{StringValues: slices.Clone(z.PCIeRoots)}
	}
	return out
}

// values counts the values of all attributes.
func values(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute) (n int) {
	for _, a := range attributes {
		n += max(1, len(a.IntValues)+len(a.StringValues))
	}
	return n
}

func numbers(list []int) resourceapi.DeviceAttribute {
	out := make([]int64, len(list))
	for i, n := range list {
		out[i] = int64(n)
	}
	return resourceapi.DeviceAttribute{IntValues: out}
}

func text(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }

func number(n int) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{IntValue: new(int64(n))}
}
