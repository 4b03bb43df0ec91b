// SPDX-License-Identifier: Apache-2.0

package topologytest_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// facts are the counts of a machine as Linux shows it.
type facts struct {
	CPUs, Cores, L3s, Sockets, Nodes int
	// Memory is how many nodes have each type of memory.
	Memory string
}

func factsOf(m topology.Machine) facts {
	cores, l3s, sockets, memory := make(map[int]bool), make(map[int]bool), make(map[int]bool), make(map[topology.MemoryType]int)
	for _, c := range m.CPUs {
		cores[c.Core], l3s[c.L3], sockets[c.Socket] = true, true, true
	}
	for _, n := range m.NUMANodes {
		memory[n.Memory]++
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(memory)) {
		types = append(types, fmt.Sprintf("%d %s", memory[t], t))
	}
	return facts{len(m.CPUs), len(cores), len(l3s), len(sockets), len(m.NUMANodes), strings.Join(types, ", ")}
}

func TestLibrary(t *testing.T) {
	want := map[string]facts{
		"xeon-8380":               {160, 80, 2, 2, 2, "2 dram"},
		"xeon-8480-snc4":          {224, 112, 8, 2, 8, "8 dram"}, // an L3 for each node
		"xeon-max-9480-flat":      {224, 112, 2, 2, 4, "2 dram, 2 hbm"},
		"xeon-max-9480-flat-snc4": {224, 112, 8, 2, 16, "8 dram, 8 hbm"},
		"xeon-8280-optane":        {112, 56, 2, 2, 4, "2 dram, 2 unknown"},
		"xeon-8592-cxl":           {256, 128, 2, 2, 3, "1 cxl, 2 dram"},
		"epyc-7763-nps2":          {256, 128, 16, 2, 4, "4 dram"},
		"epyc-9654-nps1":          {384, 192, 24, 2, 2, "2 dram"},
		"epyc-9654-nps4":          {384, 192, 24, 2, 8, "8 dram"},
		"epyc-9654-cxl":           {384, 192, 24, 2, 4, "2 cxl, 2 dram"},
		"epyc-9754":               {256, 128, 16, 1, 1, "1 dram"},
		"altra-max":               {256, 256, 2, 2, 2, "2 dram"}, // the node stands for the cache
		"altra-max-64k":           {256, 256, 2, 2, 2, "2 dram"},
		"kunpeng-920":             {128, 128, 4, 2, 4, "4 dram"},
		"grace-superchip":         {144, 144, 2, 2, 2, "2 dram"},
		"grace-hopper":            {72, 72, 1, 1, 9, "1 dram, 8 unknown"},
		"gb10":                    {20, 20, 2, 1, 1, "1 dram"},
		"snapdragon-8-gen-2":      {8, 8, 1, 1, 1, "1 dram"},
		"rk3588":                  {8, 8, 1, 1, 1, "1 dram"},
		"power9-ac922":            {160, 40, 20, 2, 6, "2 dram, 4 unknown"},
		"core-i9-13900k":          {32, 24, 1, 1, 1, "1 dram"},
		"vm-1cpu":                 {1, 1, 1, 1, 1, "1 dram"},
		"vm-vnuma":                {16, 8, 2, 2, 2, "2 dram"},
		"vm-no-l3":                {8, 8, 8, 8, 1, "1 dram"},
	}
	for _, c := range topologytest.Library() {
		t.Run(c.Name, func(t *testing.T) {
			m := c.Spec.Machine()
			require.Equal(t, want[c.Name], factsOf(m))
			require.NotEmpty(t, c.Hardware)
			for i, n := range m.NUMANodes {
				require.Equal(t, 10, n.Distances[i])
				for j, o := range m.NUMANodes {
					require.Equal(t, n.Distances[j], o.Distances[i], "node %d to %d and back", n.ID, o.ID)
					require.Equal(t, i == j, n.Distances[j] == 10)
				}
			}
		})
	}
	require.Len(t, topologytest.Library(), len(want))
}

func TestNumbering(t *testing.T) {
	library := topologytest.Library()
	for name, c := range map[string]struct {
		id                         int
		core, l3, cluster, node, s int
		kind                       topology.CPUType
	}{
		"xeon-8480-snc4":  {125, 13, 0, 13, 0, 0, "standard"},
		"epyc-9654-nps4":  {191, 191, 184, 191, 7, 1, "standard"},
		"epyc-9754":       {255, 127, 120, 127, 0, 0, "standard"},
		"altra-max":       {255, 255, 128, 254, 1, 1, "standard"},
		"kunpeng-920":     {127, 127, 96, 124, 3, 1, "standard"},
		"power9-ac922":    {159, 156, 152, 156, 8, 8, "standard"},
		"core-i9-13900k":  {31, 31, 0, 28, 0, 0, "efficiency"},
		"rk3588":          {7, 7, 0, 4, 0, 0, "performance"},
		"gb10":            {14, 14, 10, 14, 0, 0, "efficiency"},
		"grace-superchip": {143, 143, 72, 143, 1, 1, "standard"},
	} {
		i := slices.IndexFunc(library, func(o topologytest.Case) bool { return o.Name == name })
		m := library[i].Spec.Machine()
		require.Equal(t, topology.CPU{
			ID: c.id, Core: c.core, L3: c.l3, Cluster: c.cluster, Node: c.node, Socket: c.s, Type: c.kind,
		}, m.CPUs[c.id], name)
	}
}

// A74: kinds of cores that have more than one capacity.
func TestKindsOfCores(t *testing.T) {
	for name, want := range map[string]map[topology.CPUType]int{
		"gb10":               {topology.CPUPerformance: 10, topology.CPUEfficiency: 10},
		"snapdragon-8-gen-2": {topology.CPUPerformance: 5, topology.CPUEfficiency: 3},
		"rk3588":             {topology.CPUPerformance: 4, topology.CPUEfficiency: 4},
		"core-i9-13900k":     {topology.CPUPerformance: 16, topology.CPUEfficiency: 16},
		"grace-superchip":    {topology.CPUStandard: 144},
	} {
		library := topologytest.Library()
		i := slices.IndexFunc(library, func(c topologytest.Case) bool { return c.Name == name })
		got := make(map[topology.CPUType]int)
		for _, c := range library[i].Spec.Machine().CPUs {
			got[c.Type]++
		}
		require.Equal(t, want, got, name)
	}
}

func devices(t *testing.T, m topology.Machine, by zones.Kind) ([]zones.Zone, []resourceapi.Device) {
	t.Helper()
	cfg, err := config.Default().ZonesConfig()
	require.NoError(t, err)
	cfg.GroupBy = by
	divided, err := zones.Divide(m, cfg)
	if by == zones.Socket && err != nil {
		require.ErrorContains(t, err, "spans sockets")
		return nil, nil
	}
	require.NoError(t, err)
	zs, claimable := divided.Zones, 0
	for _, z := range zs {
		claimable += z.CPUCapacity
	}
	require.Equal(t, divided.Pool.CPUs.Size()-1, claimable, "I7: one CPU stays")
	return zs, resourceslices.Devices(zs, resourceslices.Options{PageSize: m.PageSize})
}

// The published devices keep the API's limits.
func TestLimits(t *testing.T) {
	for _, c := range slices.Concat(topologytest.All(), topologytest.Library()) {
		m := c.Spec.Machine()
		for i := range m.NUMANodes {
			m.NUMANodes[i].PCIeRoots = roots(i)
		}
		for _, by := range []zones.Kind{zones.NUMANode, zones.Socket, zones.Machine} {
			zs, _ := devices(t, m, by)
			for _, d := range resourceslices.Devices(zs, resourceslices.Options{PageSize: m.PageSize, NUMANodeList: true, PCIeRoots: true}) {
				require.LessOrEqual(t, values(d), resourceapi.ResourceSliceMaxAttributeValuesPerDevice, "%s %s", c.Name, d.Name)
				require.LessOrEqual(t, len(d.Attributes)+len(d.Capacity),
					resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice, "%s %s", c.Name, d.Name)
				for name := range d.Attributes {
					domain, id, _ := strings.Cut(string(name), "/")
					require.LessOrEqual(t, len(domain), resourceapi.DeviceMaxDomainLength)
					require.LessOrEqual(t, len(id), resourceapi.DeviceMaxIDLength)
					require.Regexp(t, `^[A-Za-z_][A-Za-z0-9_]*$`, id)
				}
			}
		}
	}
}

// roots returns more PCIe roots of a node than usual machines have.
func roots(node int) (out []string) {
	for i := range 12 {
		out = append(out, fmt.Sprintf("pci%04x:%02x", node, i))
	}
	return out
}

// values counts the values of a device's attributes.
func values(d resourceapi.Device) (n int) {
	for _, a := range d.Attributes {
		n += max(1, len(a.IntValues)+len(a.StringValues))
	}
	return n
}

const page = "../../../docs/reference/machines.md"

const (
	begin = "<!-- begin: written by go test ./dra-frontend/topology/topologytest -run TestPage -update -->\n"
	end   = "<!-- end -->\n"
)

// The table of docs/reference/machines.md shows what the driver publishes.
func TestPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("\n| machine | CPUs | cores | L3s | NUMA nodes | devices with `sharedPool.minCPUs: 1` |\n|---|---|---|---|---|---|\n")
	for _, c := range topologytest.Library() {
		m := c.Spec.Machine()
		f := factsOf(m)
		zs, _ := devices(t, m, zones.NUMANode)
		fmt.Fprintf(&table, "| `%s`: %s | %d | %d | %d | %d | %s |\n",
			c.Name, c.Hardware, f.CPUs, f.Cores, f.L3s, f.Nodes, strings.Join(published(zs), "<br>"))
	}
	table.WriteString("\n")

	data, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(data), begin)
	require.True(t, found)
	old, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+table.String()+end+after), 0o644))
		return
	}
	require.Equal(t, table.String(), old, "run the test with -update")
}

var update = flag.Bool("update", false, "write the table of docs/reference/machines.md")

// published describes the zones; neighbours with equal offers share a line.
func published(zs []zones.Zone) []string {
	var out []string
	for i := 0; i < len(zs); {
		j := i
		for j+1 < len(zs) && offer(zs[j+1]) == offer(zs[i]) {
			j++
		}
		name := "`" + zs[i].Name + "`"
		if j > i {
			name += " to `" + zs[j].Name + "`"
		}
		out = append(out, name+": "+offer(zs[i]))
		i = j + 1
	}
	return out
}

func offer(z zones.Zone) string {
	var parts []string
	if z.CPUCapacity > 0 {
		parts = append(parts, fmt.Sprintf("%d CPUs", z.CPUCapacity))
		if z.CPUType != topology.CPUStandard {
			parts[0] += fmt.Sprintf(" (%s)", z.CPUType)
		}
	}
	parts = append(parts, fmt.Sprintf("%d GiB %s", z.Memory>>30, z.MemoryType))
	for _, size := range slices.Sorted(maps.Keys(z.Hugepages)) {
		parts = append(parts, fmt.Sprintf("%d %s", z.Hugepages[size], zones.CapacityHugepages(size)))
	}
	return strings.Join(parts, ", ")
}
