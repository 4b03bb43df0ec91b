// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func discover(sys fstest.MapFS) (topology.Machine, error) {
	return topology.Discover(topology.Roots{Sys: sys, Proc: fstest.MapFS{}}, 4096)
}

func set(t *testing.T, list string) contract.CPUSet {
	t.Helper()
	s, err := contract.ParseCPUs(list)
	require.NoError(t, err)
	return s
}

func cpu(m topology.Machine, id int) topology.CPU {
	i := slices.IndexFunc(m.CPUs, func(c topology.CPU) bool { return c.ID == id })
	return m.CPUs[i]
}

func TestMachines(t *testing.T) {
	t.Run("T2: repeated core ids are different cores", func(t *testing.T) {
		m := topologytest.T2().Machine()
		require.Equal(t, topology.CPU{ID: 5, Core: 1, Cluster: 1, L3: 0, Node: 0, Socket: 0, Type: "standard"}, cpu(m, 5))
		require.Equal(t, topology.CPU{ID: 7, Core: 3, Cluster: 3, L3: 2, Node: 1, Socket: 1, Type: "standard"}, cpu(m, 7))
		require.Equal(t, "2-3,6-7", m.NUMANodes[1].CPUs.String())
		require.Equal(t, int64(16)<<30, m.NUMANodes[1].MemTotal)
		require.Equal(t, map[int64]int64{2 << 20: 512, 1 << 30: 2}, m.NUMANodes[1].Hugepages)
		require.Equal(t, []int{21, 10}, m.NUMANodes[1].Distances)
		require.Equal(t, topology.MemoryDRAM, m.NUMANodes[1].Memory)
	})
	t.Run("T4", func(t *testing.T) {
		m := topologytest.T4().Machine()
		require.Len(t, m.CPUs, 512)
		require.Len(t, m.NUMANodes, 8)
		require.Equal(t, topology.CPU{ID: 511, Core: 255, Cluster: 255, L3: 248, Node: 7, Socket: 3, Type: "standard"}, cpu(m, 511))
	})
	t.Run("T5: two kinds of cores", func(t *testing.T) {
		m := topologytest.T5().Machine()
		require.Equal(t, topology.CPU{ID: 15, Core: 14, Cluster: 14, Type: "performance"}, cpu(m, 15))
		require.Equal(t, topology.CPU{ID: 23, Core: 23, Cluster: 20, Type: "efficiency"}, cpu(m, 23))
	})
	t.Run("A03: T6 has a node without CPUs", func(t *testing.T) {
		m := topologytest.T6().Machine()
		n, found := m.Node(2)
		require.True(t, found)
		require.True(t, n.CPUs.IsEmpty())
		require.Equal(t, topology.MemoryUnknown, n.Memory)
		require.Equal(t, int64(64)<<30, n.MemTotal)
	})
	t.Run("A04: T7 sizes, the node stands for the unknown cache", func(t *testing.T) {
		m := topologytest.T7().Machine()
		require.Equal(t, int64(65536), m.PageSize)
		require.Equal(t, map[int64]int64{2 << 20: 16, 512 << 20: 4, 16 << 30: 1}, m.NUMANodes[0].Hugepages)
		require.Equal(t, topology.CPU{ID: 6, Core: 6, Cluster: 6, L3: 4, Node: 1, Socket: 1, Type: "standard"}, cpu(m, 6))
	})
	t.Run("A04: T8 sparse ids", func(t *testing.T) {
		m := topologytest.T8().Machine()
		require.Equal(t, "0-2,4-10,80-82,84-90", m.Online().String())
		n, found := m.Node(8)
		require.True(t, found)
		require.Equal(t, "80-82,84-90", n.CPUs.String())
		_, found = m.Node(1)
		require.False(t, found)
		require.Equal(t, topology.CPU{ID: 90, Core: 88, Cluster: 88, L3: 80, Node: 8, Socket: 8, Type: "standard"}, cpu(m, 90))
	})
	t.Run("big.LITTLE by capacity", func(t *testing.T) {
		s := topologytest.T7()
		for i := range s.CPUs[:4] {
			s.CPUs[i].Capacity = 446
		}
		m := s.Machine()
		require.Equal(t, topology.CPUEfficiency, cpu(m, 3).Type)
		require.Equal(t, topology.CPUPerformance, cpu(m, 4).Type)
	})
	t.Run("kernel without NUMA", func(t *testing.T) {
		s := topologytest.T1()
		s.NoNUMA = true
		s.Nodes[0].Hugepages = map[int64]int64{2 << 20: 7}
		m := s.Machine()
		require.Equal(t, []topology.NUMANode{{
			ID: 0, CPUs: set(t, "0-3"), MemTotal: 8 << 30, Hugepages: map[int64]int64{2 << 20: 7}, Distances: []int{10}, Memory: "dram",
		}}, m.NUMANodes)
	})
	t.Run("a node without memory", func(t *testing.T) {
		s := topologytest.T2()
		s.Nodes[1].Memory, s.Nodes[1].Hugepages = 0, nil
		require.Equal(t, topology.MemoryUnknown, s.Machine().NUMANodes[1].Memory)
	})
	t.Run("an L3 that spans nodes is one for each", func(t *testing.T) {
		s := topologytest.T2()
		for i := range s.CPUs {
			s.CPUs[i].L3, s.CPUs[i].Socket = 0, 0
		}
		m := s.Machine()
		require.Equal(t, 0, cpu(m, 5).L3)
		require.Equal(t, 2, cpu(m, 7).L3)
	})
}

func TestThisMachine(t *testing.T) {
	m, err := topology.Discover(topology.Roots{Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc")}, int64(os.Getpagesize()))
	require.NoError(t, err)
	require.NotEmpty(t, m.CPUs)
	require.NotZero(t, m.NUMANodes[0].MemTotal)
}

// A07: each file is removed, emptied, and filled with rubbish. The result is an
// error that names the file, or a machine with every CPU in its right place.
func TestMissingAndMalformedFiles(t *testing.T) {
	fallbacks := map[string]string{ // file → what may differ without the file
		"cluster_cpus_list": "cluster", "distance": "distance", "nr_hugepages": "", "surplus_hugepages": "nothing",
		"type": "cache", "level": "cache", "shared_cpu_list": "cache",
		"cpu_capacity": "type", "cpus": "type", "midr_el1": "type",
		"core_id": "nothing", "physical_package_id": "nothing",
		"nodelist": "memory", "target_node": "memory", "read_bandwidth": "memory", "read_latency": "memory",
		"numa_node": "nothing", "size": "nothing",
	}
	tiered := topologytest.T6()
	for i, n := range []topologytest.Node{
		{Tier: 4, Performance: ddr}, {Tier: 4, Performance: ddr}, {Tier: 22, Performance: slow, DAX: topologytest.CXL},
	} {
		tiered.Nodes[i].Tier, tiered.Nodes[i].Performance, tiered.Nodes[i].DAX = n.Tier, n.Performance, n.DAX
	}
	cases := []topologytest.Case{
		{Name: "T2", Spec: topologytest.T2()}, {Name: "T5", Spec: topologytest.T5()}, {Name: "T7", Spec: topologytest.T7()},
		{Name: "T8", Spec: topologytest.T8()}, {Name: "T6 with tiers", Spec: tiered},
	}
	for _, c := range topologytest.Library() {
		if len(c.Spec.CPUs) <= 16 {
			cases = append(cases, c)
		}
	}
	for _, c := range cases {
		want, whole, proc := c.Spec.Machine(), c.Spec.Sys(), c.Spec.Proc()
		for _, path := range slices.Sorted(maps.Keys(whole)) {
			file := path[strings.LastIndexByte(path, '/')+1:]
			for _, rubbish := range []string{"absent", "", "-2", "1-", "0-99999999", "x y z"} {
				if rubbish+"\n" == string(whole[path].Data) {
					continue
				}
				t.Run(c.Name+"/"+path+"="+rubbish, func(t *testing.T) {
					sys := maps.Clone(whole)
					if rubbish == "absent" {
						delete(sys, path)
					} else {
						sys[path] = &fstest.MapFile{Data: []byte(rubbish + "\n")}
					}
					got, err := topology.Discover(topology.Roots{Sys: sys, Proc: proc}, c.Spec.PageSize)
					if err != nil {
						if rubbish != "" { // an empty list is valid: the error is about the contradiction
							require.ErrorContains(t, err, file)
						}
						return
					}
					require.NotEmpty(t, fallbacks[file], "no error, and no documented fallback")
					for i := range got.CPUs {
						g, w := got.CPUs[i], want.CPUs[i]
						require.Equal(t, []int{w.ID, w.Core, w.Node, w.Socket}, []int{g.ID, g.Core, g.Node, g.Socket})
					}
					for i := range got.NUMANodes {
						g, w := got.NUMANodes[i], want.NUMANodes[i]
						g.Distances = w.Distances
						if fallbacks[file] == "memory" {
							unread := strings.Contains(path, "/access0/") || strings.HasPrefix(path, "bus/dax/")
							require.True(t, unread || rubbish == "absent" || rubbish == "")
							g.Memory, g.Performance = w.Memory, w.Performance
						}
						require.Equal(t, w, g)
					}
				})
			}
		}
	}
}

func TestContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		path, text, want string
	}{
		"CPU in two nodes": {
			path: "devices/system/node/node1/cpulist",
			text: "2-4,6-7",
			want: "CPU 4 is in the cpulist of NUMA nodes 0 and 1",
		},
		"CPU in no node": {
			path: "devices/system/node/node1/cpulist",
			text: "2-3,6",
			want: "CPU 7 is online but in the cpulist of no NUMA node",
		},
		"siblings across sockets": {
			path: "devices/system/cpu/cpu4/topology/physical_package_id",
			text: "1",
			want: "CPUs 0 and 4 are siblings of one core but on sockets 0 and 1",
		},
		"siblings disagree": {
			path: "devices/system/cpu/cpu4/topology/core_cpus_list",
			text: "4",
			want: `cpu0/topology/core_cpus_list: "0,4", but CPU 4 in it says "4"`,
		},
		"siblings without oneself": {
			path: "devices/system/cpu/cpu0/topology/core_cpus_list",
			text: "4",
			want: "lacks CPU 0 itself",
		},
		"a larger list above": {
			path: "devices/system/cpu/cpu5/topology/core_cpus_list",
			text: "0,4-5",
			want: `cpu1/topology/core_cpus_list: "1,5", but CPU 5 in it says "0,4-5"`,
		},
		"a larger list of another": {
			path: "devices/system/cpu/cpu7/topology/core_cpus_list",
			text: "2-3,6-7",
			want: "but CPU 7 in it says",
		},
		"some sockets unknown": {
			path: "devices/system/cpu/cpu4/topology/physical_package_id",
			text: "-1",
			want: "1 of 8 CPUs have no socket",
		},
		"hugepages beyond reason": {
			path: "devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
			text: "281474976710656",
			want: "281474976710656 pages of 2097152 bytes",
		},
		"no such hugepage size": {
			path: "devices/system/node/node0/hugepages/hugepages-3kB/nr_hugepages",
			text: "1",
			want: `"hugepages-3kB" is not the name of a hugepage size`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys := topologytest.T2().Sys()
			sys[c.path] = &fstest.MapFile{Data: []byte(c.text)}
			_, err := discover(sys)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("siblings across nodes", func(t *testing.T) {
		sys := topologytest.T2().Sys()
		sys["devices/system/node/node0/cpulist"] = &fstest.MapFile{Data: []byte("0-1,5")}
		sys["devices/system/node/node1/cpulist"] = &fstest.MapFile{Data: []byte("2-4,6-7")}
		_, err := discover(sys)
		require.ErrorContains(t, err, "CPUs 0 and 4 are siblings of one core but on NUMA nodes 0 and 1")
	})
	t.Run("page size", func(t *testing.T) {
		_, err := topology.Discover(topologytest.T1().Roots(), 5000)
		require.ErrorContains(t, err, "page size 5000")
	})
	t.Run("no /proc/meminfo on a kernel without NUMA", func(t *testing.T) {
		s := topologytest.T1()
		s.NoNUMA = true
		_, err := discover(s.Sys())
		require.ErrorContains(t, err, "meminfo")
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// Every random machine is read as it was described.
func TestRandomMachines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := topologytest.Random(t)
		m := s.Machine()
		for _, want := range s.CPUs {
			i := slices.IndexFunc(m.CPUs, func(c topology.CPU) bool { return c.ID == want.ID })
			require.Equal(t, want.Offline, i < 0)
			if i >= 0 {
				require.Equal(t, []int{want.Node, want.Socket}, []int{m.CPUs[i].Node, m.CPUs[i].Socket})
			}
		}
		require.True(t, slices.IsSortedFunc(m.CPUs, func(a, b topology.CPU) int { return a.ID - b.ID }))
	})
}
