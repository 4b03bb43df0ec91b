// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// A later reading equals a first reading, whichever CPUs go or come and however memory changes.
func TestReread_EqualsAFirstReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := topologytest.Random(t)
		spec.Present = rapid.Bool().Draw(t, "present")
		before := spec.Machine()
		if rapid.Bool().Draw(t, "CPUs change") {
			for i := range spec.CPUs {
				if i > 0 && rapid.IntRange(0, 15).Draw(t, "goes or comes") == 15 {
					spec.CPUs[i].Offline = !spec.CPUs[i].Offline
				}
			}
		}
		for i := range spec.Nodes {
			spec.Nodes[i].Memory += rapid.Int64Range(0, 2).Draw(t, "memory") << 30
			spec.Nodes[i].Hugepages = map[int64]int64{2 << 20: rapid.Int64Range(0, 9).Draw(t, "hugepages")}
			spec.Nodes[i].Tier = rapid.SampledFrom([]int{0, 1, 4}).Draw(t, "tier")
		}
		later, err := before.Reread(spec.Roots())
		require.NoError(t, err)
		require.Equal(t, spec.Machine(), later)
	})
}

// opens counts the opened files and directories about sockets, cores and caches.
type opens struct {
	fs.FS
	n int
}

var ofHardware = regexp.MustCompile(`/cpu/cpu\d+/(topology|cache)`)

func (o *opens) Open(name string) (fs.File, error) {
	if ofHardware.MatchString(name) {
		o.n++
	}
	return o.FS.Open(name)
}

func TestReread_ReadsSocketsCoresAndCachesOnlyIfOtherCPUsAreOnline(t *testing.T) {
	spec := topologytest.T4()
	sys := &opens{FS: spec.Sys()}
	roots := topology.Roots{Sys: sys, Proc: spec.Proc()}
	before, err := topology.Discover(roots, spec.PageSize)
	require.NoError(t, err)
	require.GreaterOrEqual(t, sys.n, 5*len(before.CPUs))

	sys.n = 0
	later, err := before.Reread(roots)
	require.NoError(t, err)
	require.Equal(t, before, later)
	require.Zero(t, sys.n)

	spec.CPUs[3].Offline = true
	sys.FS = spec.Sys()
	later, err = before.Reread(roots)
	require.NoError(t, err)
	require.Equal(t, spec.Machine(), later)
	require.GreaterOrEqual(t, sys.n, 5*len(later.CPUs))
}

func TestReread_CPUsOfOtherNUMANodes(t *testing.T) {
	for name, change := range map[string]func(*topologytest.Spec){
		"the CPUs of two nodes change places": func(s *topologytest.Spec) {
			for i := range s.CPUs {
				s.CPUs[i].Node = 1 - s.CPUs[i].Node
			}
		},
		"another id": func(s *topologytest.Spec) {
			s.Nodes[1].ID = 2
			for i := range s.CPUs {
				s.CPUs[i].Node *= 2
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := topologytest.T2()
			before := spec.Machine()
			change(&spec)
			later, err := before.Reread(spec.Roots())
			require.NoError(t, err)
			require.Equal(t, spec.Machine(), later)
			require.NotEqual(t, before.CPUs, later.CPUs)
		})
	}
}

// A CPU that has come online, and that the kernel has given to no NUMA node, is not left out.
func TestReread_CPUOfNoNUMANode(t *testing.T) {
	spec := topologytest.T2()
	whole := spec.Sys()
	spec.CPUs[7].Offline = true
	before, sys := spec.Machine(), spec.Sys()
	for path, f := range whole {
		if strings.Contains(path, "devices/system/cpu/") {
			sys[path] = f
		}
	}
	_, err := before.Reread(topology.Roots{Sys: sys, Proc: spec.Proc()})
	require.ErrorContains(t, err, "CPU 7 is online but in the cpulist of no NUMA node")
}

// Until the frequencies of Arm cores are known, the kernel gives all cores the same capacity.
func TestReread_KindsOfCores(t *testing.T) {
	spec := topologytest.T2()
	capacities := func(of func(id int) int) topology.Roots {
		sys := spec.Sys()
		for _, c := range spec.CPUs {
			sys["devices/system/cpu/cpu"+contract.CPUs(c.ID).String()+"/cpu_capacity"] = text("%d\n", of(c.ID))
		}
		return topology.Roots{Sys: sys, Proc: spec.Proc()}
	}
	same := capacities(func(int) int { return 1024 })
	before, err := topology.Discover(same, spec.PageSize)
	require.NoError(t, err)
	require.Equal(t, topology.CPUStandard, before.CPUs[0].Type)
	later, err := before.Reread(capacities(func(id int) int { return 1024 - 512*(id%2) }))
	require.NoError(t, err)
	require.Equal(t, topology.CPUPerformance, later.CPUs[0].Type)
	require.Equal(t, topology.CPUEfficiency, later.CPUs[1].Type)
	require.Equal(t, topology.CPUStandard, before.CPUs[0].Type, "the earlier reading stays as it is")
	later, err = later.Reread(same)
	require.NoError(t, err)
	require.Equal(t, before, later)
}

// What the kernel shows for a moment, while a CPU comes or goes, is a warning. So the next look reads it again.
func TestReread_AfterAWarning(t *testing.T) {
	spec := topologytest.T2()
	for i := range spec.CPUs { // each core has one thread, and two cores share an L3
		spec.CPUs[i].L3, spec.CPUs[i].Core, spec.CPUs[i].Cluster = spec.CPUs[i].Core, i, topologytest.NoCluster
	}
	const dir = "devices/system/cpu/cpu7/cache/"
	for name, change := range map[string]func(fstest.MapFS){
		"a malformed list": func(sys fstest.MapFS) { sys[dir+"index2/shared_cpu_list"] = text("x") },
		"a CPU without caches": func(sys fstest.MapFS) {
			maps.DeleteFunc(sys, func(path string, _ *fstest.MapFile) bool { return strings.HasPrefix(path, dir) })
			for _, c := range spec.CPUs { // the CPU that shares the L3 has no other CPU in its list
				if c.L3 == spec.CPUs[7].L3 && c.ID != 7 {
					list := contract.CPUs(c.ID).String()
					sys["devices/system/cpu/cpu"+list+"/cache/index2/shared_cpu_list"] = text("%s", list)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys := spec.Sys()
			change(sys)
			roots := topology.Roots{Sys: sys, Proc: spec.Proc()}
			before, err := topology.Discover(roots, spec.PageSize)
			require.NoError(t, err)
			require.Len(t, before.Warnings, 1)
			require.Contains(t, before.Warnings[0], "cpu7/cache")
			later, err := before.Reread(roots)
			require.NoError(t, err)
			require.Equal(t, before, later)
			later, err = before.Reread(spec.Roots())
			require.NoError(t, err)
			require.Equal(t, spec.Machine(), later)
			require.NotEqual(t, before.CPUs, later.CPUs)
		})
	}
}
