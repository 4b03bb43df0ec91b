// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"
)

func cpus(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(list)
	require.NoError(t, err)
	return set
}

// A01, A03: the API server took the slices as they were meant.
func TestA01_Slices(t *testing.T) {
	require.Len(t, theSuite.slices(t), 2)
	const noCPU = int64(-1)
	nodes := map[string]struct {
		cpu       []int64 // of each NUMA node
		hugepages int64
	}{
		// One CPU stays in the shared pool (I7).
		node: {[]int64{3, 4}, 256 << 20},
		wide: {[]int64{3, 4, 4, 4, noCPU}, 128 << 20},
	}
	for name, want := range nodes {
		devices := theSuite.on(name).slice(t).Spec.Devices
		require.Len(t, devices, len(want.cpu), name)
		for i, d := range devices {
			what := name + " " + d.Name
			require.Equal(t, fmt.Sprintf("numa-%d", i), d.Name)
			require.True(t, *d.AllowMultipleAllocations, what)
			require.Empty(t, d.Taints, what)
			require.Equal(t, int64(i), *d.Attributes["resource.kubernetes.io/numaNode"].IntValue, what)
			has := map[string]int64{}
			for capacity, c := range d.Capacity {
				has[string(capacity)] = c.Value.Value()
				require.NotNil(t, c.RequestPolicy, "%s: capacity %s", what, capacity)
				require.True(t, c.RequestPolicy.Default.IsZero(), "%s: capacity %s", what, capacity)
			}
			// The kernel keeps some of the memory to itself.
			all := int64(theSuite.Machine(name).MemoryMiB) << 20 / int64(theSuite.Machine(name).Nodes())
			require.InDelta(t, all-want.hugepages, has["memory"], 160<<20, what)
			expected := map[string]int64{"cpu": want.cpu[i], "hugepages_2Mi": want.hugepages, "memory": has["memory"]}
			if want.cpu[i] == noCPU {
				delete(expected, "cpu")
			}
			require.Equal(t, expected, has, what)
		}
	}
}

// A30, A31, A40: 4 CPUs and 512Mi of one NUMA node, as the container sees them
// and as they stand in every cgroup above it.
func TestA40_CPUsAndMemoryOfOneNode(t *testing.T) {
	s := theSuite
	s.claim(t, "a40", "numa-1", capacity{"cpu": "4", "memory": "512Mi"})
	p := s.run(t, pod("a40", []string{"mask", "view", "touch", "64Mi", "sleep"}, "a40"))
	out := s.lines(t, "a40", "touch")
	require.Equal(t, "4-7", out["mask"].CPUs, "from the first instruction on")
	view := out["view"]
	require.Equal(t, "1", view.Mems)
	require.Equal(t, map[string]int{"1": 64 << 20 / 4096}, out["touch"].PagesPerNode, "every page is of the claimed node")

	const m = "536870912"
	for file, want := range map[string]string{
		"cpuset.cpus": "4-7", "cpuset.cpus.effective": "4-7", "cpuset.mems": "1",
		"memory.max": m, "memory.min": m, "memory.low": "0", "memory.high": "max",
	} {
		require.Equal(t, want, s.cgroup(t, p, "main", file), "container %s", file)
	}
	require.Equal(t, m, s.cgroup(t, p, "", "memory.min"), "pod")
	require.Equal(t, m, s.file(t, s.levelDir("besteffort")+"/memory.min"), "QoS level")
	require.Equal(t, m, s.file(t, s.levelDir("")+"/memory.min"), "kubepods")
	require.Equal(t, "0-3", s.nodeState(t).Shared.CPUs)
	s.shows(t, "a40", `{"request":"zone","cpus":"4-7","mems":"1","memory":{"min":536870912,"low":0,"high":"max","max":536870912},
		"parameters":{"cpu.placement":"packed","cpu.wholeCores":"false","cpu.wholeL3":"false","memory.protection":"auto"}}`)

	s.remove(t, "a40")
	eventually(t, "everything returned", func(context.Context) error {
		if n := s.nodeState(t); n.Shared.CPUs != "0-7" || len(n.Pods) != 0 {
			return fmt.Errorf("node state %+v", n)
		}
		return nil
	})
	eventually(t, "ancestors back at zero", func(context.Context) error {
		for _, dir := range []string{s.levelDir(""), s.levelDir("besteffort")} {
			if v := s.file(t, dir+"/memory.min"); v != "0" {
				return fmt.Errorf("%s/memory.min is %s", dir, v)
			}
		}
		return nil
	})
}

// A42: what is claimed is what can be mapped, and not a page more.
func TestA42_Hugepages(t *testing.T) {
	s := theSuite
	s.claim(t, "a42", "", capacity{"hugepages_2Mi": "64Mi"})
	p := s.run(t, pod("a42", []string{"mask", "hugepages", "2Mi", "33", "sleep"}, "a42"))
	got := s.lines(t, "a42", "hugepages")["hugepages"]
	require.Equal(t, 32, got.Got, "pages; stopped by %q", got.Stopped)
	for _, file := range []string{"hugetlb.2MB.max", "hugetlb.2MB.rsvd.max"} {
		require.Equal(t, "67108864", s.cgroup(t, p, "main", file))
		require.Equal(t, "67108864", s.cgroup(t, p, "", file), "pod")
	}
	require.Equal(t, s.nodeState(t).Shared.CPUs, cpus(t, s.lines(t, "a42", "mask")["mask"].CPUs).String(), "no CPUs claimed: it runs on the shared pool")

	// A claimless pod has what kubelet gives it: nothing.
	plain := s.run(t, pod("a42-plain", []string{"hugepages", "2Mi", "1", "sleep"}))
	require.Zero(t, s.lines(t, "a42-plain", "hugepages")["hugepages"].Got)
	require.Equal(t, "0", s.cgroup(t, plain, "", "hugetlb.2MB.max"), "sizes not claimed stay as kubelet set them")
}

// A31, A32: pool containers are moved away before the exclusive container is
// created, and get the CPUs back while they run.
func TestA32_PoolMovesAwayAndBack(t *testing.T) {
	s := theSuite
	var pool []*corev1.Pod
	for i := range 3 {
		pool = append(pool, s.run(t, pod(fmt.Sprintf("a32-pool-%d", i), []string{"mask", "sleep"})))
	}
	for _, p := range pool {
		require.Equal(t, "0-7", s.cgroup(t, p, "main", "cpuset.cpus"))
	}
	s.claim(t, "a32", "", capacity{"cpu": "2"})
	s.run(t, pod("a32", []string{"mask", "sleep"}, "a32"))
	mine := cpus(t, s.lines(t, "a32", "mask")["mask"].CPUs)
	require.Equal(t, 2, mine.Size())
	for _, p := range pool {
		effective := cpus(t, s.cgroup(t, p, "main", "cpuset.cpus.effective"))
		require.True(t, effective.Intersection(mine).IsEmpty(), "pool container on %s, claim on %s", effective, mine)
		require.Equal(t, 6, effective.Size())
	}
	// A container that is created while the claim lives.
	late := s.run(t, pod("a32-late", []string{"mask", "sleep"}))
	require.True(t, cpus(t, s.lines(t, "a32-late", "mask")["mask"].CPUs).Intersection(mine).IsEmpty())

	s.remove(t, "a32")
	for _, p := range append(pool, late) {
		eventually(t, "pool grows in "+p.Name, func(context.Context) error {
			if got := s.cgroup(t, p, "main", "cpuset.cpus.effective"); got != "0-7" {
				return fmt.Errorf("cpuset.cpus.effective is %s", got)
			}
			return nil
		})
	}
}

// A30: several claims on one container add up.
func TestA30_TwoClaimsOnOneContainer(t *testing.T) {
	s := theSuite
	s.claim(t, "a30-a", "numa-0", capacity{"cpu": "2", "memory": "64Mi"})
	s.claim(t, "a30-b", "numa-1", capacity{"cpu": "1", "memory": "32Mi"})
	p := s.run(t, pod("a30", []string{"mask", "view", "sleep"}, "a30-a", "a30-b"))
	view := s.lines(t, "a30", "view")["view"]
	require.Equal(t, "0-1", view.Mems)
	require.Equal(t, 3, cpus(t, view.CPUs).Size())
	require.Equal(t, "100663296", s.cgroup(t, p, "main", "memory.max"))
	require.Equal(t, "100663296", s.cgroup(t, p, "", "memory.min"))
}

// A38: a container that restarts in its pod gets the same CPUs, and nothing
// else on the node moves.
func TestA38_ContainerRestart(t *testing.T) {
	s := theSuite
	s.claim(t, "a38", "", capacity{"cpu": "2"})
	p := s.run(t, pod("a38", []string{"mask", "sleep"}, "a38"))
	before := s.nodeState(t)
	mask := s.lines(t, "a38", "mask")["mask"].CPUs
	_, err := s.NodeExec(t.Context(), node, "kill -9 $(cat "+s.cgroupDir(t, p, "main")+"/cgroup.procs)")
	require.NoError(t, err)
	eventually(t, "restart", func(ctx context.Context) error {
		got := s.running(t, "a38")
		if got.Status.ContainerStatuses[0].RestartCount == 0 {
			return fmt.Errorf("not restarted yet")
		}
		return nil
	})
	require.Equal(t, mask, s.lines(t, "a38", "mask")["mask"].CPUs)
	require.Equal(t, before, s.nodeState(t))
}
