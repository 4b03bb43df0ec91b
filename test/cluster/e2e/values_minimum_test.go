// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"
)

// sockets configures zones of several NUMA nodes, two CPUs for the shared pool, and
// the options that are off by default.
func (s suite) sockets(t *testing.T) {
	t.Helper()
	s.configure(t, "config.groupBy=socket", "config.sharedPool.minCPUs=2", "config.nodeAllocatable=true", "config.deviceMetadata=true")
	for name, want := range map[string]map[string]int64{
		node: {"socket-0": 2, "socket-1": 4},
		wide: {"socket-0": 6, "socket-1": 8, "numa-4": 0},
	} {
		s.on(name).publishes(t, want)
	}
}

// A09: the scheduler, not the node, refuses a claim that would take one of the last
// two shared CPUs, and allocates it when another claim is gone.
func TestA09_LastCPUsStayShared(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.sockets(t)
	for i := range 3 {
		name := fmt.Sprintf("a09-%d", i)
		s.claim(t, name, "", capacity{"cpu": "2"})
		s.create(t, pod(name, []string{"mask", "sleep"}, name))
	}
	shared := cpus(t, "0-7")
	for i := range 3 {
		name := fmt.Sprintf("a09-%d", i)
		s.running(t, name)
		shared = shared.Difference(cpus(t, s.lines(t, name, "mask")["mask"].CPUs))
	}
	require.Equal(t, 2, shared.Size(), "CPUs without a claim: %s", shared)
	require.Equal(t, shared.String(), s.nodeState(t).Shared.CPUs)

	s.claim(t, "a09-last", "", capacity{"cpu": "1"})
	s.create(t, pod("a09-last", []string{"mask", "sleep"}, "a09-last"))
	s.unschedulable(t, "a09-last")
	c, err := s.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "a09-last", getOptions)
	require.NoError(t, err)
	require.Nil(t, c.Status.Allocation)
	require.Equal(t, shared.String(), s.nodeState(t).Shared.CPUs)

	s.remove(t, "a09-0")
	s.running(t, "a09-last")
}

// siblings returns the CPUs that share a core or a cache with the CPU, from a file
// of the CPU in sysfs.
func (s suite) siblings(t *testing.T, cpu int, file string) cpuset.CPUSet {
	t.Helper()
	return cpus(t, s.file(t, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/%s", cpu, file)))
}

// A12: in a zone with two last-level caches, a claim that fits into one cache gets
// CPUs of one cache and whole cores, whatever claims came and went before.
func TestA12_OneL3AfterChurn(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	s.sockets(t)
	const l3, core = "cache/index3/shared_cpu_list", "topology/thread_siblings_list"
	run := func(name, amount string) {
		t.Helper()
		s.claim(t, name, "socket-1", capacity{"cpu": amount})
		s.create(t, pod(name, []string{"mask", "sleep"}, name))
	}
	mask := func(name string) cpuset.CPUSet {
		t.Helper()
		s.running(t, name)
		return cpus(t, s.lines(t, name, "mask")["mask"].CPUs)
	}
	run("a12-a", "1")
	a := mask("a12-a")
	run("a12-b", "2")
	b := mask("a12-b")
	require.Equal(t, s.siblings(t, b.List()[0], core), b, "one core")
	run("a12-c", "1")
	c := mask("a12-c")
	require.Equal(t, s.siblings(t, a.List()[0], core), a.Union(c), "the third claim takes what the first left of its core")

	// One cache has no claim, the other cache has a free core.
	s.remove(t, "a12-b")
	run("a12-d", "4")
	d := mask("a12-d")
	require.Equal(t, s.siblings(t, d.List()[0], l3), d, "one cache, all of it")
	run("a12-e", "2")
	e := mask("a12-e")
	require.Equal(t, s.siblings(t, e.List()[0], core), e, "one core")
	require.Equal(t, s.siblings(t, a.List()[0], l3), a.Union(c).Union(e), "the other cache is full")
	for _, name := range []string{"a12-a", "a12-c", "a12-e"} {
		s.remove(t, name)
	}
	run("a12-f", "4")
	f := mask("a12-f")
	require.Equal(t, s.siblings(t, f.List()[0], l3), f, "one cache, all of it")
}
