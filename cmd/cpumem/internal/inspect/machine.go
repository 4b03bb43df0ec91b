// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/size"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Machine is what the frontend would publish for a machine.
type Machine struct {
	PageSize   int64      `json:"pageSize"`
	Zones      []Zone     `json:"zones"`
	SharedPool SharedPool `json:"sharedPool"`
	// Warnings say which files contradict each other or are malformed, and what
	// the reader assumed instead.
	Warnings []string `json:"warnings,omitempty"`
	// LeftOut are parts that are not offered although the configuration does
	// not name them.
	LeftOut []zones.LeftOut `json:"leftOut,omitempty"`

	devices []resourceapi.Device
}

// Zone is a device.
type Zone struct {
	Name string `json:"name"`
	// CPU is the published capacity, a part of the CPUs.
	CPU       int                  `json:"cpu"`
	CPUs      contract.CPUSet      `json:"cpus"`
	Cores     int                  `json:"cores"`
	L3Caches  int                  `json:"l3Caches"`
	CPUType   topology.CPUType     `json:"cpuType,omitempty"`
	Memory    int64                `json:"memory"`
	Hugepages map[string]int64     `json:"hugepages,omitempty"`
	Mems      contract.NUMANodeSet `json:"mems"`
	// Distances are by NUMA node; zones of several nodes have none.
	Distances          map[int]int         `json:"distances,omitempty"`
	MemoryType         topology.MemoryType `json:"memoryType,omitempty"`
	ReadBandwidth      int64               `json:"memoryReadBandwidth,omitempty"`
	ReadLatency        int64               `json:"memoryReadLatency,omitempty"`
	NearestCPUNode     *int                `json:"nearestCPUNode,omitempty"`
	NearestCPUDistance *int                `json:"nearestCPUDistance,omitempty"`
}

// SharedPool is the shared pool while there is no claim.
type SharedPool struct {
	CPUs contract.CPUSet      `json:"cpus"`
	Mems contract.NUMANodeSet `json:"mems"`
}

// ReadMachine reads the machine and divides it into zones as the frontend does.
// pageSize is in bytes.
func ReadMachine(roots topology.Roots, pageSize int64, c config.Config) (Machine, error) {
	m, err := topology.Discover(roots, pageSize)
	if err != nil {
		return Machine{}, err
	}
	divided, err := c.Divide(m)
	if err != nil {
		return Machine{}, err
	}
	out := Machine{
		PageSize: pageSize, Zones: []Zone{}, LeftOut: divided.LeftOut(), Warnings: m.Warnings,
		SharedPool: SharedPool{CPUs: divided.Pool.CPUs, Mems: divided.Pool.Mems},
		devices: resourceslices.Devices(divided.Offer(nil),
			resourceslices.OptionsOf(c, pageSize, nil)),
	}
	for _, z := range divided.Zones {
		out.Zones = append(out.Zones, describe(z))
	}
	return out, nil
}

func describe(z zones.Zone) Zone {
	d := Zone{
		Name: z.Name, CPU: z.CPUCapacity, CPUs: z.CPUs, Cores: z.NumCores, L3Caches: z.L3Caches, CPUType: z.CPUType,
		Memory: z.Memory, Hugepages: make(map[string]int64, len(z.Hugepages)), Mems: z.Mems, Distances: z.Distances,
		MemoryType: z.MemoryType, ReadBandwidth: z.Performance.ReadBandwidth, ReadLatency: z.Performance.ReadLatency,
	}
	for size, pages := range z.Hugepages {
		d.Hugepages[contract.FormatPageSize(size)] = pages
	}
	if z.NearestCPUNode >= 0 {
		d.NearestCPUNode, d.NearestCPUDistance = &z.NearestCPUNode, &z.NearestCPUDistance
	}
	return d
}

// ResourceSlices writes the slices that the frontend would publish for the machine, as
// YAML documents. "node" stands for the node's name.
func (m Machine) ResourceSlices(w io.Writer) error {
	const node = "node"
	for pool, resources := range resourceslices.DriverResources(node, m.devices).Pools {
		for i, slice := range resources.Slices {
			data, err := yaml.Marshal(resourceapi.ResourceSlice{
				TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", node, contract.Vendor, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: contract.Vendor, NodeName: new(node), Devices: slice.Devices,
					Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: int64(len(resources.Slices))},
				},
			})
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "---\n%s", data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Table writes the machine for people.
func (m Machine) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ZONE\tCPU\tCPUS\tCORES\tL3S\tMEMORY\tTYPE\tHUGEPAGES\tMEMS\tDISTANCES")
	for _, z := range m.Zones {
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", z.Name, z.CPU, or(z.CPUs.String(), "-"), z.Cores, z.L3Caches,
			size.Format(z.Memory), z.memory(), pairs(z.Hugepages, "="), or(z.Mems.String(), "-"), pairs(z.Distances, ":"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(t, "\nshared pool with no claim: cpus %s\n", or(m.SharedPool.CPUs.String(), "none"))
	for _, l := range m.LeftOut {
		fmt.Fprintf(t, "left out: %s: %s\n", l.What, l.Why)
	}
	for _, warning := range m.Warnings {
		fmt.Fprintf(t, "warning: %s\n", warning)
	}
	return t.Flush()
}

// memory returns the type of memory and what firmware reports about it.
func (z Zone) memory() string {
	out := or(string(z.MemoryType), "-")
	if z.ReadBandwidth > 0 {
		out += fmt.Sprintf(",%dMB/s", z.ReadBandwidth)
	}
	if z.ReadLatency > 0 {
		out += fmt.Sprintf(",%dns", z.ReadLatency)
	}
	return out
}

func pairs[K int | string, V int | int64](values map[K]V, sign string) string {
	out := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		out = append(out, fmt.Sprint(key, sign, values[key]))
	}
	return or(strings.Join(out, ","), "-")
}
