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

// A01, A03: the slices at the API server have the nodes' zones, attributes and capacities.
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

// A75: the wide node offers memory that is not known to be DRAM. A plain claim does
// not get it, even if the claim asks for that zone by name.
func TestA75_PlainClaimsGetDRAM(t *testing.T) {
	s := theSuite.on(wide)
	s.claim(t, "a75", "numa-4", capacity{"memory": "64Mi"})
	s.create(t, pod("a75", []string{"view", "sleep"}, "a75"))
	s.unschedulable(t, "a75")
}

// A31, A32: pool containers leave the CPUs of a claim before the claim's container
// is created, and get them back while they run.
func TestA32_PoolMovesAwayAndBack(t *testing.T) {
	longOnly(t) // the demo shows it too
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
	// A container that is created while the claim is prepared.
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

// A38: a container that restarts in its pod gets the same CPUs, and the node state
// does not change.
func TestA38_ContainerRestart(t *testing.T) {
	longOnly(t)
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
