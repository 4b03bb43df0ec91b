// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"io/fs"
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// A machine that is read again is what a first reading shows, whatever has changed.
func TestAgain_EqualsAFirstReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := topologytest.Random(t)
		before := spec.Machine()
		for i := range spec.CPUs {
			if i > 0 && rapid.IntRange(0, 15).Draw(t, "goes or comes") == 15 {
				spec.CPUs[i].Offline = !spec.CPUs[i].Offline
			}
		}
		for i := range spec.Nodes {
			spec.Nodes[i].Memory += rapid.Int64Range(0, 2).Draw(t, "memory") << 30
			spec.Nodes[i].Hugepages = map[int64]int64{2 << 20: rapid.Int64Range(0, 9).Draw(t, "hugepages")}
		}
		again, err := before.Again(spec.Roots())
		require.NoError(t, err)
		require.Equal(t, spec.Machine(), again)
	})
}

// opens counts the opened files about single CPUs.
type opens struct {
	fstest.MapFS
	ofCPUs int
}

var ofCPU = regexp.MustCompile(`/cpu/cpu\d+/(topology|cache)`)

func (o *opens) Open(name string) (fs.File, error) {
	if ofCPU.MatchString(name) {
		o.ofCPUs++
	}
	return o.MapFS.Open(name)
}

func TestAgain_ReadsSocketsCoresAndCachesOfOtherCPUsOnly(t *testing.T) {
	spec := topologytest.T4()
	sys := &opens{MapFS: spec.Sys()}
	roots := topology.Roots{Sys: sys, Proc: spec.Proc()}
	before, err := topology.Discover(roots, spec.PageSize)
	require.NoError(t, err)
	first := sys.ofCPUs
	require.GreaterOrEqual(t, first, 5*len(before.CPUs), "the files of the first reading are counted")

	again, err := before.Again(roots)
	require.NoError(t, err)
	require.Equal(t, before, again)
	require.Equal(t, first, sys.ofCPUs, "no file of a CPU is read again")

	spec.CPUs[3].Offline = true
	sys.MapFS = spec.Sys()
	again, err = before.Again(roots)
	require.NoError(t, err)
	require.Equal(t, spec.Machine(), again)
	require.Greater(t, sys.ofCPUs, first)
}

func TestAgain_CPUsOfOtherNUMANodes(t *testing.T) {
	spec := topologytest.T2()
	before := spec.Machine()
	for i := range spec.CPUs {
		spec.CPUs[i].Node = 1 - spec.CPUs[i].Node
	}
	again, err := before.Again(spec.Roots())
	require.NoError(t, err)
	require.Equal(t, spec.Machine(), again)
	require.NotEqual(t, before.CPUs, again.CPUs)
}

// The kernel knows the capacities of Arm cores only when their frequencies are known, which may be later.
func TestAgain_KindsOfCoresThatAreKnownLater(t *testing.T) {
	spec := topologytest.T5()
	sys := spec.Sys()
	for _, file := range []string{"devices/cpu_core/cpus", "devices/cpu_atom/cpus"} {
		require.Contains(t, sys, file)
		delete(sys, file)
	}
	before, err := topology.Discover(topology.Roots{Sys: sys, Proc: spec.Proc()}, spec.PageSize)
	require.NoError(t, err)
	require.Equal(t, topology.CPUStandard, before.CPUs[0].Type)
	again, err := before.Again(spec.Roots())
	require.NoError(t, err)
	require.Equal(t, spec.Machine(), again)
	require.NotEqual(t, before, again)
	again, err = again.Again(topology.Roots{Sys: sys, Proc: spec.Proc()})
	require.NoError(t, err)
	require.Equal(t, before, again)
}

func TestAgain_CachesAfterAWarning(t *testing.T) {
	spec := topologytest.T2()
	sys := spec.Sys()
	const file = "devices/system/cpu/cpu0/cache/index2/shared_cpu_list"
	require.Contains(t, sys, file)
	sys[file] = text("x")
	before, err := topology.Discover(topology.Roots{Sys: sys, Proc: spec.Proc()}, spec.PageSize)
	require.NoError(t, err)
	require.NotEmpty(t, before.Warnings)
	again, err := before.Again(spec.Roots())
	require.NoError(t, err)
	require.Equal(t, spec.Machine(), again)
}
