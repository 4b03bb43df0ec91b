// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

var (
	older = lab.Instance{PodUID: "00000000-0000-4000-9000-000000000001"}
	newer = lab.Instance{PodUID: "00000000-0000-4000-9000-000000000002"}
)

// A63: a rolling update changes the node state. The older frontend writes until the
// newer frontend takes over, and not after that. Each node state is written once, so
// no cpuset or ancestor file changes twice.
func TestOverlapOfConfigurations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change         func(*config.Config)
		pool, ancestor string
	}{
		"managedCPUs":        {func(c *config.Config) { c.ManagedCPUs = "1-7" }, "1,3-5,7", "1073741824"},
		"sharedPool.mode":    {func(c *config.Config) { c.ManagedCPUs, c.SharedPool.Mode = "1-3,5-7", "fixed" }, "0,4", "1073741824"},
		"memoryQoS.owner":    {func(c *config.Config) { c.MemoryQoS.Owner = config.OwnerKubelet }, "0-1,3-5,7", "0"},
		"nothing that shows": {func(c *config.Config) { c.CPU.Placement = "spread" }, "0-1,3-5,7", "1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Instance: older})
			pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
			p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
			start(t, n, p)
			before, generation := n.Frontend(), n.State().Generation
			states := uint64(1)
			if tc.pool == pool.CPUs() && tc.ancestor == n.ReadCgroup("kubepods", "memory.min") {
				states = 0
			}

			f := n.StartBeside(newer, tc.change)
			f.Register()
			// Kubelet calls the newer frontend before that is the active instance. The
			// claim's file wakes both frontends, which watch the directory.
			q := podWith(n, "q", lab.Request{Zone: "numa-0", Capacity: map[string]string{"memory": "1Gi"}})
			require.True(t, n.Allocate(q))
			require.NoError(t, n.Prepare(q))
			require.NoError(t, n.Unprepare(q))
			n.Applied()
			// One node state may have both the new configuration and the claim.
			after := n.State().Generation
			require.LessOrEqual(t, after, generation+states+2, "node states")
			require.Equal(t, tc.pool, pool.CPUs())
			require.Equal(t, tc.ancestor, n.ReadCgroup("kubepods", "memory.min"))
			n.Ready()

			before.Stop()
			require.NoError(t, n.Unprepare(p))
			n.Applied()
			require.Equal(t, after+1, n.State().Generation, "node states after the older one ended")
			require.Equal(t, "0", n.ReadCgroup("kubepods", "memory.min"))
		})
	}
}

// A63: an instance that kubelet does not register does not take over. When the active
// instance ends, the older instance takes over again.
func TestNewerInstanceFails(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Instance: older})
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	before := n.Frontend()
	reserve := func(c *config.Config) { c.ManagedCPUs = "1-7" }

	never := n.StartBeside(newer, reserve)
	never.Waits("an older instance of the frontend serves this node")
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
	require.Equal(t, "0-1,3-5,7", pool.CPUs())
	require.ErrorContains(t, never.Ready(), "an older instance of the frontend serves this node")
	never.Stop()

	f := n.StartBeside(lab.Instance{PodUID: "00000000-0000-4000-9000-000000000003"}, reserve)
	f.Register()
	n.WaitPool("1,3-5,7")
	before.Waits("a newer instance of the frontend serves this node")
	require.Error(t, before.Ready(), "kubelet must not call it")
	f.Stop()
	before.Register()
	n.Ready()
	n.WaitPool("0-1,3-5,7")
	start(t, n, podWith(n, "q", lab.Request{Zone: "numa-1", Capacity: cpu("1")}))

	// A restarted container does not become the newest instance.
	f = n.StartBeside(newer, reserve)
	f.Register()
	n.WaitPool("1,4-5,7")
	before.Stop()
	again := n.StartBeside(older, func(c *config.Config) { c.ManagedCPUs = "" })
	again.Waits("a newer instance of the frontend serves this node")
	n.Ready()
	require.Equal(t, "1,4-5,7", n.Pool())
}

// A63: with two releases on a node, the first release writes. The second release
// waits, and reports it, until the first has ended.
func TestTwoReleases(t *testing.T) {
	t.Parallel()
	first, second := older, newer
	first.Release, second.Release = "a/cpumem", "b/cpumem"
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Instance: first})
	before, generation := n.Frontend(), n.State().Generation
	f := n.StartBeside(second, func(c *config.Config) { c.ManagedCPUs = "1-7" })
	f.Waits("a frontend of another release serves this node")
	require.ErrorContains(t, f.Ready(), "uninstall one of them")
	require.Len(t, n.WaitEvents("SecondRelease", 1), 1)
	n.Ready()
	require.Equal(t, generation, n.State().Generation)

	before.Stop()
	f.Register()
	n.WaitPool("1-7")
	n.Ready()
}
