// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

type performance = topology.MemoryPerformance

var (
	ddr  = performance{ReadBandwidth: 300000, ReadLatency: 110}
	fast = performance{ReadBandwidth: 1600000, ReadLatency: 130}
	slow = performance{ReadBandwidth: 60000, ReadLatency: 250}
)

func TestMemoryTypes(t *testing.T) {
	for _, c := range []struct {
		name string
		// Node 0 has CPUs, node 2 has none.
		zero, two topologytest.Node
		expander  bool
		want      topology.MemoryType
	}{
		{name: "no evidence", want: "unknown"},
		{name: "a DAX device of the CXL bus", two: topologytest.Node{DAX: topologytest.CXL}, want: "cxl"},
		{
			name: "the bus is stronger than a tier",
			zero: topologytest.Node{Tier: 4},
			two:  topologytest.Node{DAX: topologytest.CXL, Tier: 4},
			want: "cxl",
		},
		{
			name:     "persistent memory",
			zero:     topologytest.Node{Tier: 4, Performance: ddr},
			two:      topologytest.Node{DAX: topologytest.NVD, Tier: 22, Performance: slow},
			expander: true,
			want:     "unknown",
		},
		{
			name: "a DAX device of no known bus",
			zero: topologytest.Node{Tier: 4},
			two:  topologytest.Node{DAX: topologytest.HMEM, Tier: 22},
			want: "unknown",
		},
		{name: "fast by HMAT", zero: topologytest.Node{Performance: ddr}, two: topologytest.Node{Performance: fast}, want: "hbm"},
		{
			name:     "HMAT is stronger than a tier",
			zero:     topologytest.Node{Performance: ddr, Tier: 4},
			two:      topologytest.Node{Performance: fast, Tier: 22, DAX: topologytest.HMEM},
			expander: true,
			want:     "hbm",
		},
		{
			name: "much bandwidth, far away",
			zero: topologytest.Node{Performance: ddr},
			two:  topologytest.Node{Performance: performance{ReadBandwidth: 1600000, ReadLatency: 800}},
			want: "unknown",
		},
		{
			name:     "slow by HMAT beside an expander",
			zero:     topologytest.Node{Performance: ddr},
			two:      topologytest.Node{Performance: slow},
			expander: true,
			want:     "cxl",
		},
		{
			name: "slow by HMAT, no expander",
			zero: topologytest.Node{Performance: ddr},
			two:  topologytest.Node{Performance: slow},
			want: "unknown",
		},
		{
			name:     "DRAM by HMAT",
			zero:     topologytest.Node{Performance: ddr},
			two:      topologytest.Node{Performance: ddr},
			expander: true,
			want:     "unknown",
		},
		{name: "HMAT of one node only", two: topologytest.Node{Performance: fast}, want: "unknown"},
		{
			name: "HMAT without latency",
			zero: topologytest.Node{Performance: performance{ReadBandwidth: 1}},
			two:  topologytest.Node{Performance: performance{ReadBandwidth: 9}},
			want: "unknown",
		},
		{name: "a faster tier", zero: topologytest.Node{Tier: 4}, two: topologytest.Node{Tier: 1}, want: "hbm"},
		{
			name:     "a slower tier beside an expander",
			zero:     topologytest.Node{Tier: 4},
			two:      topologytest.Node{Tier: 22},
			expander: true,
			want:     "cxl",
		},
		{name: "a slower tier", zero: topologytest.Node{Tier: 4}, two: topologytest.Node{Tier: 22}, want: "unknown"},
		{name: "the same tier", zero: topologytest.Node{Tier: 4}, two: topologytest.Node{Tier: 4}, expander: true, want: "unknown"},
		{name: "a tier of one node only", two: topologytest.Node{Tier: 1}, want: "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := topologytest.T6()
			s.Nodes[0].Tier, s.Nodes[0].Performance = c.zero.Tier, c.zero.Performance
			s.Nodes[2].Tier, s.Nodes[2].Performance, s.Nodes[2].DAX = c.two.Tier, c.two.Performance, c.two.DAX
			sys := s.Sys()
			if c.expander {
				sys["bus/cxl/devices/mem7/numa_node"] = &fstest.MapFile{Data: []byte("0")}
			}
			m, err := discover(sys)
			require.NoError(t, err)
			require.Equal(t, topology.MemoryDRAM, m.NUMANodes[0].Memory)
			require.Equal(t, c.want, m.NUMANodes[2].Memory)
			require.Equal(t, c.two.Performance, m.NUMANodes[2].Performance)
		})
	}
	t.Run("a node without memory", func(t *testing.T) {
		s := topologytest.T6()
		s.Nodes[2] = topologytest.Node{ID: 2, DAX: topologytest.CXL, Tier: 1}
		require.Equal(t, topology.MemoryUnknown, s.Machine().NUMANodes[2].Memory)
	})
}

func TestPerformanceOfCPUs(t *testing.T) {
	s := topologytest.T6()
	s.Nodes[2].Performance = slow
	sys := s.Sys()
	// Class 0 is about the accelerator that the memory belongs to.
	sys["devices/system/node/node2/access0/initiators/read_bandwidth"].Data = []byte("4000000\n")
	m, err := discover(sys)
	require.NoError(t, err)
	require.Equal(t, slow, m.NUMANodes[2].Performance)
	delete(sys, "devices/system/node/node2/access1/initiators/read_bandwidth")
	delete(sys, "devices/system/node/node2/access1/initiators/read_latency")
	m, err = discover(sys)
	require.NoError(t, err)
	require.Equal(t, int64(4000000), m.NUMANodes[2].Performance.ReadBandwidth)
}

// Names of an unexpected form are no evidence.
func TestOtherNamesInDirectories(t *testing.T) {
	sys := topologytest.T6().Sys()
	for _, path := range []string{
		"devices/virtual/memory_tiering/power/control", "devices/virtual/memory_tiering/memory_tierX/nodelist",
		"devices/virtual/memory_tiering/4/nodelist", "bus/cxl/devices/root0/uevent", "bus/cxl/devices/dax_region/dax0.0/target_node",
		"bus/cxl/devices/dax_region0/dax_region/target_node", "bus/nd/devices/region0/target_node", "bus/cxl/devices/mem/x",
	} {
		sys[path] = &fstest.MapFile{Data: []byte("x y z")}
	}
	m, err := discover(sys)
	require.NoError(t, err)
	require.Equal(t, topologytest.T6().Machine(), m)
}

func TestNearestCPUNode(t *testing.T) {
	s := topologytest.T6()
	for i, distances := range [][]int{{10, 21, 24}, {21, 10, 14}, {24, 14, 10}} {
		s.Nodes[i].Distances = distances
	}
	m := s.Machine()
	id, distance, found := m.NearestCPUNode(m.NUMANodes[2])
	require.Equal(t, []any{1, 14, true}, []any{id, distance, found})
	id, distance, found = m.NearestCPUNode(m.NUMANodes[0])
	require.Equal(t, []any{0, 10, true}, []any{id, distance, found})
}

// In sysfs, the devices of a bus are links to places elsewhere in the tree.
func TestDevicesAreLinks(t *testing.T) {
	s := topologytest.T6()
	s.Nodes[2].DAX = topologytest.CXL
	dir := t.TempDir()
	for name, f := range s.Sys() {
		name = strings.Replace(name, "bus/cxl/devices/", "devices/platform/ACPI0017:00/root0/", 1)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), f.Data, 0o600))
	}
	bus := filepath.Join(dir, "bus/cxl/devices")
	require.NoError(t, os.MkdirAll(bus, 0o755))
	for _, name := range []string{"dax_region2", "mem2"} {
		require.NoError(t, os.Symlink("../../../devices/platform/ACPI0017:00/root0/"+name, filepath.Join(bus, name)))
	}
	m, err := topology.Discover(topology.Roots{Sys: os.DirFS(dir), Proc: s.Proc()}, s.PageSize)
	require.NoError(t, err)
	require.Equal(t, s.Machine(), m)
}
