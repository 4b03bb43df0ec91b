// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// elsewhere starts a process on the node in a cgroup of its own with the CPUs of
// list, as another driver would. stays requires that process and CPUs are unchanged.
func (s suite) elsewhere(t *testing.T, list string) (stays func()) {
	t.Helper()
	const dir = "/sys/fs/cgroup/elsewhere"
	_, err := s.NodeExec(t.Context(), s.node, "mkdir "+dir+" && echo "+list+" >"+dir+"/cpuset.cpus && "+
		"{ sh -c 'echo $$ >"+dir+"/cgroup.procs && exec sleep 3600' >/dev/null 2>&1 & }")
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := s.NodeExec(context.Background(), s.node,
			"echo 1 >"+dir+"/cgroup.kill; until rmdir "+dir+"; do usleep 100000; done"); err != nil {
			t.Errorf("end the process: %v", err)
		}
	})
	running := func(context.Context) error {
		if s.file(t, dir+"/cgroup.procs") == "" {
			return fmt.Errorf("no process in %s", dir)
		}
		return nil
	}
	eventually(t, "process on unmanaged CPUs", running)
	return func() {
		t.Helper()
		for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective"} {
			require.Equal(t, list, s.file(t, dir+"/"+file), file)
		}
		require.NoError(t, running(t.Context()))
	}
}

// A58: a node split in two, with the shared pool on one side and claims on the
// other. The two never share a CPU.
func TestA58_FixedPool(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t, "config.managedCPUs=2-7", "config.sharedPool.mode=fixed")
	s.publishes(t, map[string]int64{"numa-0": 2, "numa-1": 4})
	stays := s.elsewhere(t, "1")
	plain := s.run(t, pod("a58-plain", []string{"mask", "sleep"}))
	pooled := func() {
		t.Helper()
		stays()
		require.Equal(t, "0-1", s.nodeState(t).Shared.CPUs)
		require.Equal(t, "0-1", s.cgroup(t, plain, "main", "cpuset.cpus.effective"))
	}
	pooled()
	s.takeAll(t, map[string]string{"numa-0": "2-3", "numa-1": "4-7"})
	pooled()
	late := s.run(t, pod("a58-late", []string{"mask", "sleep"}))
	s.beganOn(t, late.Name, "0-1")
	for _, zone := range []string{"numa-0", "numa-1"} {
		s.remove(t, "a58-"+zone)
	}
	s.released(t, "0-1")
	pooled()
}

// A58: the same split, but the other side's CPUs are unmanaged: another driver
// assigns them. Claims and the shared pool divide the managed CPUs.
func TestA58_UnmanagedCPUs(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t, "config.managedCPUs=2-7")
	s.publishes(t, map[string]int64{"numa-0": 1, "numa-1": 4})
	stays := s.elsewhere(t, "1")
	plain := s.run(t, pod("a58-plain", []string{"mask", "sleep"}))
	s.beganOn(t, plain.Name, "2-7")
	stays()
	s.takeAll(t, map[string]string{"numa-1": "4-7"})
	require.Equal(t, "2-3", s.cgroup(t, plain, "main", "cpuset.cpus.effective"))
	stays()
	s.remove(t, "a58-numa-1")
	s.released(t, "2-7")
	eventually(t, "pool grows", func(context.Context) error {
		if got := s.cgroup(t, plain, "main", "cpuset.cpus.effective"); got != "2-7" {
			return fmt.Errorf("cpuset.cpus.effective is %s", got)
		}
		return nil
	})
	stays()
}

// publishes waits until the node's devices have the given cpu capacities, by device.
func (s suite) publishes(t *testing.T, want map[string]int64) {
	t.Helper()
	eventually(t, "new slice of "+s.node, func(context.Context) error {
		got := map[string]int64{}
		for device, amounts := range amounts(s.slice(t)) {
			got[device] = amounts["cpu"]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("cpu capacities %v, want %v", got, want)
		}
		return nil
	})
}

// takeAll claims all CPUs of each zone and requires that they are the CPUs given
// for the zone.
func (s suite) takeAll(t *testing.T, zones map[string]string) {
	t.Helper()
	for zone, list := range zones {
		name := "a58-" + zone
		s.claim(t, name, zone, capacity{"cpu": fmt.Sprint(cpus(t, list).Size())})
		s.create(t, pod(name, []string{"mask", "sleep"}, name))
	}
	for zone, list := range zones {
		s.beganOn(t, "a58-"+zone, list)
	}
}

// released waits until no claim is prepared on the node and the shared pool has the
// given CPUs.
func (s suite) released(t *testing.T, shared string) {
	t.Helper()
	eventually(t, "claims released", func(context.Context) error {
		if n := s.nodeState(t); n.Shared.CPUs != shared || len(n.Pods) != 0 {
			return fmt.Errorf("node state %+v, want shared CPUs %s", n, shared)
		}
		return nil
	})
}
