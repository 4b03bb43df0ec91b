// SPDX-License-Identifier: Apache-2.0

package description_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// read reads the described machine with the real reader.
func read(t require.TestingT, text string) topology.Machine {
	spec, err := description.Parse([]byte(text))
	require.NoError(t, err)
	files := topologytest.Spec(spec)
	m, err := topology.Discover(topology.Roots{Sys: files.Sys(), Proc: files.Proc()}, spec.PageSize)
	require.NoError(t, err)
	return m
}

func TestSmallest(t *testing.T) {
	m := read(t, "{}")
	require.Equal(t, int64(4096), m.PageSize)
	require.Equal(t, []topology.CPU{{Type: topology.CPUStandard}}, m.CPUs)
	require.Len(t, m.NUMANodes, 1)
	require.Equal(t, int64(16)<<30, m.NUMANodes[0].MemTotal)
	require.True(t, m.Offline.IsEmpty())
}

func TestEverything(t *testing.T) {
	m := read(t, `
sockets: 2
numaNodesPerSocket: 2
l3sPerNUMANode: 2
coresPerL3: 2
threadsPerCore: 2
efficiencyCoresPerL3: 1
adjacentSiblings: true
offlineCPUs: 3,39
pageSize: 64Ki
memoryPerNUMANode: 32Gi
hugepagesPerNUMANode: {2Mi: 16, 1Gi: 4}
memoryOnlyNodes:
- {type: cxl, memory: 64Gi, socket: 1}
- {type: hbm, memory: 8Gi, hugepages: {2Mi: 1}}
- {type: unknown, memory: 1Gi}
`)
	require.Equal(t, int64(65536), m.PageSize)
	require.Equal(t, "3,39", m.Offline.String())
	require.Len(t, m.CPUs, 38)
	require.Equal(t, topology.CPU{ID: 5, Core: 4, Cluster: 4, L3: 4, Node: 0, Socket: 0, Type: topology.CPUPerformance}, m.CPUs[4])
	require.Equal(t, topology.CPU{ID: 38, Core: 38, Cluster: 38, L3: 24, Node: 3, Socket: 1, Type: topology.CPUEfficiency}, m.CPUs[37])
	var types []topology.MemoryType
	for _, n := range m.NUMANodes {
		types = append(types, n.Memory)
	}
	require.Equal(t, []topology.MemoryType{"dram", "dram", "dram", "dram", "cxl", "hbm", "unknown"}, types)
	require.Equal(t, contract.CPUs(0, 1, 2, 4, 5, 6, 7, 32, 33), m.NUMANodes[0].CPUs)
	require.Equal(t, map[int64]int64{2 << 20: 16, 1 << 30: 4}, m.NUMANodes[3].Hugepages)
	require.Equal(t, map[int64]int64{2 << 20: 1}, m.NUMANodes[5].Hugepages)
	require.Equal(t, []int{10, 12, 32, 32, 32, 20, 20}, m.NUMANodes[0].Distances)
	require.Equal(t, []int{32, 32, 20, 20, 10, 32, 32}, m.NUMANodes[4].Distances)
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                {"", "is empty"},
		"a key twice":            {"{sockets: 1, sockets: 2}", `key "sockets" already set`},
		"unknown key":            {"{socket: 1}", `unknown field "socket"`},
		"no socket":              {"{sockets: 0}", "sockets: 0, want 1 to 8192"},
		"too many cores":         {"{coresPerL3: 8193}", "coresPerL3: 8193, want"},
		"too large a product":    {"{sockets: 8192, threadsPerCore: 2}", "threadsPerCore: the machine would have more than 8192 CPUs"},
		"too many small cores":   {"{sockets: 4, efficiencyCoresPerL3: 2048}", "efficiencyCoresPerL3: 2048"},
		"negative small cores":   {"{efficiencyCoresPerL3: -1}", "efficiencyCoresPerL3: -1"},
		"too many nodes":         {"{sockets: 1025}", "1025 NUMA nodes, want at most 1024"},
		"page size":              {"{pageSize: 3Ki}", `pageSize: page size "3Ki"`},
		"memory":                 {"{memoryPerNUMANode: -1}", "memory of -1, want 0 to 64Ti"},
		"hugepage size":          {"{hugepagesPerNUMANode: {2M: 1}}", `page size "2M"`},
		"more pages than memory": {"{hugepagesPerNUMANode: {1Gi: 10, 2Mi: 4000}}", "4000 pages of 2Mi"},
		"a node's type": {
			text: "{memoryOnlyNodes: [{memory: 1Gi}]}",
			want: `memoryOnlyNodes[0]: type "", want one of ["cxl" "hbm" "unknown"]`,
		},
		"a node's socket":    {"{memoryOnlyNodes: [{type: cxl, memory: 1Gi, socket: 1}]}", "memoryOnlyNodes[0]: socket 1, want 0 to 0"},
		"a node's pages":     {"{memoryOnlyNodes: [{type: cxl, hugepages: {1Gi: 1}}]}", "memoryOnlyNodes[0]: 1 pages of 1Gi"},
		"offline":            {"{offlineCPUs: a}", "offlineCPUs: "},
		"offline and absent": {"{coresPerL3: 2, offlineCPUs: '2'}", "offlineCPUs: the machine has CPUs 0 to 1, not 2"},
		"all offline":        {"{offlineCPUs: '0'}", "no CPU would be online"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := description.Parse([]byte(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The reader takes every machine that Parse takes.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../../examples/simulate/machine.yaml")
	require.NoError(f, err)
	f.Add(example)
	f.Add([]byte("{coresPerL3: 4, threadsPerCore: 2, efficiencyCoresPerL3: 6, offlineCPUs: '3'}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := description.Parse(data)
		if err != nil || len(spec.CPUs) > 64 || len(spec.Nodes) > 64 {
			return
		}
		read(t, string(data))
	})
}
