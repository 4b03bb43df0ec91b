// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// A30: a container has the values of one claim, two claims, one request of a claim,
// or a claim of memory only, in the OCI spec and in the cgroup.
func TestDecisions(t *testing.T) {
	t.Parallel()
	both := map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"}
	for name, c := range map[string]struct {
		claims     func(n *lab.Node) []string
		cpus, mems string
		files      map[string]string
	}{
		"one claim": {func(n *lab.Node) []string {
			return []string{n.Claim("c", lab.Request{Name: "r", Zone: "numa-1", Capacity: both})}
		}, "2,6", "1", map[string]string{
			"memory.min": "1073741824", "memory.low": "0", "memory.high": "max", "memory.max": "1073741824",
			"hugetlb.2MB.max": "4194304", "hugetlb.1GB.max": "0",
		}},
		"two claims on two zones": {func(n *lab.Node) []string {
			return []string{
				n.Claim("c", lab.Request{Name: "r", Zone: "numa-1", Capacity: both}),
				n.Claim("d", lab.Request{Name: "r", Zone: "numa-0", Capacity: both}),
			}
		}, "0,2,4,6", "0-1", map[string]string{"memory.min": "2147483648", "memory.max": "2147483648", "hugetlb.2MB.max": "8388608"}},
		"one request of a claim": {func(n *lab.Node) []string {
			n.Claim("c", lab.Request{Name: "r", Zone: "numa-1", Capacity: both}, lab.Request{Name: "s", Zone: "numa-0", Capacity: both})
			return []string{"c/s"}
		}, "0,4", "0", map[string]string{"memory.min": "1073741824", "hugetlb.2MB.max": "4194304"}},
		"both requests of a claim": {func(n *lab.Node) []string {
			return []string{n.Claim("c",
				lab.Request{Name: "r", Zone: "numa-1", Capacity: both}, lab.Request{Name: "s", Zone: "numa-0", Capacity: both})}
		}, "0,2,4,6", "0-1", map[string]string{"memory.min": "2147483648"}},
		"memory only": {func(n *lab.Node) []string {
			return []string{n.Claim("c", lab.Request{Name: "r", Zone: "numa-1", Capacity: map[string]string{"memory": "2Gi"}})}
		}, "0-7", "1", map[string]string{"memory.min": "2147483648", "memory.max": "2147483648"}},
		"A31 no claim": {
			claims: func(*lab.Node) []string { return nil },
			cpus:   "0-7",
			mems:   "0-1",
			files:  map[string]string{"memory.min": "0", "memory.max": "max", "hugetlb.2MB.max": "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, topologytest.T2())
			p := n.Pod("p", lab.Guaranteed, lab.ContainerSpec{Name: "main", Claims: c.claims(n)})
			ctr := start(t, n, p)[0]
			require.Equal(t, c.cpus, ctr.Spec.Linux.Resources.CPU.Cpus)
			require.Equal(t, c.cpus, ctr.ReadCgroup("cpuset.cpus"))
			require.Equal(t, c.mems, ctr.ReadCgroup("cpuset.mems"))
			for file, want := range c.files {
				require.Equal(t, want, ctr.ReadCgroup(file), file)
			}
			require.NoError(t, n.Remove(p))
			n.Check()
		})
	}
}

// A32: all pool containers are off the CPUs before the first container of the claim
// is created, and get the CPUs back while they run. A38: a container that is started
// again has the same CPUs, and no pool container moves.
func TestPoolMoves(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	var pool []*lab.Container
	for i := range 5 {
		pool = append(pool, start(t, n, n.Pod(fmt.Sprintf("pool-%d", i), lab.BestEffort, lab.ContainerSpec{Name: "main"}))...)
	}
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("3")})
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	c, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	for _, other := range pool {
		require.Equal(t, "0-1,4-5,7", other.CPUs(), "before it starts")
	}
	require.NoError(t, c.Start())
	n.Check()

	generation := n.State().Generation
	for range 3 {
		cpus := c.CPUs()
		c.Stop()
		n.Check()
		c, err = n.CreateContainer(p, "main")
		require.NoError(t, err)
		require.NoError(t, c.Start())
		n.Check()
		require.Equal(t, cpus, c.CPUs())
		require.Equal(t, generation, n.State().Generation)
	}
	require.Zero(t, n.Metric("cpumem_actuator_repaired_total"))

	require.NoError(t, n.Remove(p))
	n.Check()
	for _, other := range pool {
		require.Equal(t, "0-7", other.CPUs())
	}
}

// A35: zeros from kubelet and old values from the runtime's spec do not stay. Values
// that were written without an actuator are repaired when the actuator is back.
func TestUpdates(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
	c := start(t, n, p)[0]
	require.NoError(t, c.Update())
	n.Check()
	require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	require.NoError(t, pool.Update(), "its spec is of the time of its creation")
	n.Check()
	require.Equal(t, "0-1,3-5,7", pool.CPUs())

	n.StopActuator(true)
	require.NoError(t, c.Update())
	require.Equal(t, "0", c.ReadCgroup("memory.min"), "nobody is there")
	n.StartActuator()
	n.Check()
	require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	require.Equal(t, 1.0, n.Metric("cpumem_actuator_repaired_total", "memory.min"))
}

// A34: 500 containers are synchronised at once. Values that were changed by hand are
// repaired and counted.
func TestSynchronizeManyContainers(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	var all []*lab.Container
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	exclusive := start(t, n, p)[0]
	for i := range 50 {
		var specs []lab.ContainerSpec
		for j := range 10 {
			specs = append(specs, lab.ContainerSpec{Name: fmt.Sprintf("c%d", j)})
		}
		pod := n.Pod(fmt.Sprintf("pool-%d", i), lab.Burstable, specs...)
		for _, spec := range specs {
			c, err := n.CreateContainer(pod, spec.Name)
			require.NoError(t, err)
			require.NoError(t, c.Start())
			all = append(all, c)
		}
	}
	n.StopActuator(false)
	for i, c := range all {
		if i%5 == 0 {
			c.SetCgroup("cpuset.cpus", "0-7")
		}
	}
	exclusive.SetCgroup("cpuset.cpus", "0")
	before := time.Now()
	n.StartActuator()
	t.Logf("start, connection and synchronisation took %s", time.Since(before))
	n.Check()
	require.Equal(t, "2,6", exclusive.CPUs())
	require.Equal(t, 101.0, n.Metric("cpumem_actuator_repaired_total", "cpuset.cpus"),
		"the next actuator knows what the former one wrote")
	require.Equal(t, 1.0, n.Metric("cpumem_actuator_call_seconds_count", "Synchronize", "success"))
}

// A21: without a working actuator no claim is prepared, and the devices are tainted
// and unhealthy.
func TestActuatorIsMissed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away, back func(t *testing.T, n *lab.Node)
		err        string
	}{
		"dead": {
			func(_ *testing.T, n *lab.Node) { n.StopActuator(true) },
			func(_ *testing.T, n *lab.Node) { n.StartActuator() },
			"nri-actuator is not running on this node",
		},
		"ended": {
			func(_ *testing.T, n *lab.Node) { n.StopActuator(false) },
			func(_ *testing.T, n *lab.Node) { n.StartActuator() },
			"nri-actuator is not running on this node",
		},
		"not connected": {
			func(_ *testing.T, n *lab.Node) { n.StopRuntime() },
			func(_ *testing.T, n *lab.Node) { n.StartRuntime() },
			"not connected to the container runtime",
		},
		"of another contract": {
			func(t *testing.T, n *lab.Node) {
				n.StopActuator(false)
				announce(t, n, contract.Announcement{V: contract.Version, Versions: []string{"v7"}, Connected: true})
			},
			func(t *testing.T, n *lab.Node) {
				require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.ActuatorFile)))
				n.StartActuator()
			},
			`nri-actuator reads contract versions ["v7"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, topologytest.T2())
			p := podWith(n, "p", lab.Request{Capacity: cpu("2")})
			require.True(t, n.Allocate(p))
			health := n.Health()
			require.Equal(t, map[string]string{"numa-0": "", "numa-1": ""}, health())

			c.away(t, n)
			require.ErrorContains(t, n.Prepare(p), c.err)
			n.Taints("dra.cpumem/actuator")
			waitHealth(health, "nri-actuator") // the reason may change with the next report
			require.Empty(t, n.Records())
			require.False(t, n.Allocate(podWith(n, "other", lab.Request{Capacity: cpu("1")})), "the taint keeps it away")

			c.back(t, n)
			n.Ready()
			waitHealth(health, "")
			startAllocated(t, n, p)
		})
	}
}

// waitHealth reads reports until both devices are unhealthy with the message want,
// or healthy if want is empty. Otherwise the stream ends with an error.
func waitHealth(health func() map[string]string, want string) {
	for {
		report := health()
		zero, one := report["numa-0"], report["numa-1"]
		if zero == one && (want == "" && zero == "" || want != "" && strings.Contains(zero, want)) {
			return
		}
	}
}

// announce writes an announcement and holds its lock until the test ends.
func announce(t *testing.T, n *lab.Node, a contract.Announcement) {
	t.Helper()
	data, err := contract.EncodeAnnouncement(a)
	require.NoError(t, err)
	held, err := atomicfile.WriteHeld(n.CDI, contract.ActuatorFile, data, 0o644, contract.LockAnnouncement)
	require.NoError(t, err)
	t.Cleanup(func() { held.Close() })
}
