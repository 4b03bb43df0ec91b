// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// A36: the runtime goes and comes back 20 times; what was changed meanwhile is
// set right each time, and pods come and go in between.
func TestRuntimeRestarts(t *testing.T) {
	n := newNode(t, topologytest.T2())
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	c := start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))[0]
	for range 20 {
		n.StopRuntime()
		c.SetCgroup("cpuset.cpus", "0-7")
		pool.SetCgroup("cpuset.cpus", "0-7")
		n.StartRuntime()
		n.Check()
		require.Equal(t, "2,6", c.CPUs())
		require.Equal(t, "0-1,3-5,7", pool.CPUs())
	}
	n.Ready()
	start(t, n, podWith(n, "q", lab.Request{Capacity: cpu("1")}))
}

// An actuator that does not answer stays connected: the runtime goes on without
// its answers (I7), and when it works again it puts right what passed it by.
func TestActuatorThatDoesNotAnswer(t *testing.T) {
	n := newNode(t, topologytest.T2())
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
	adaptation.SetPluginRequestTimeout(200 * time.Millisecond)
	resume := n.PauseActuator()
	missed, err := n.CreateContainer(n.Pod("missed", lab.Burstable, lab.ContainerSpec{Name: "main"}), "main")
	require.NoError(t, err, "I7")
	require.NoError(t, missed.Start(), "I7")
	require.NotEqual(t, "0-1,3-5,7", missed.CPUs(), "the runtime waited for an answer")
	adaptation.SetPluginRequestTimeout(requestTimeout)
	resume()
	require.Eventually(t, func() bool { return missed.CPUs() == "0-1,3-5,7" }, requestTimeout, time.Millisecond)
	require.Equal(t, "0-1,3-5,7", start(t, n, n.Pod("next", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0].CPUs())
	require.Equal(t, 1.0, n.Metric("cpumem_actuator_hook_duration_seconds_count", "Synchronize"), "one connection")
}

// A79: the configuration names another CDI directory while claims are in this
// one: the new frontend does not start, and says what to do.
func TestCDIDirChangesUnderClaims(t *testing.T) {
	n := newNode(t, topologytest.T2())
	elsewhere := func(c *config.Config) { c.CDIDir = filepath.Join(t.TempDir(), "cdi") }
	require.NoError(t, n.Start(elsewhere), "no claim")
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	start(t, n, p)
	err := n.Start(elsewhere)
	require.ErrorContains(t, err, "the claims of this node are in "+n.CDI)
	require.ErrorContains(t, err, "set cdiDir back")
	n.RestartFrontend()
	n.Ready()
	require.NoError(t, n.Remove(p))
	require.NoError(t, n.Start(elsewhere), "the claim is released")
}

// A36, A37: the actuator is killed before each step of a pod with a claim. The
// container does not run without its decision; when the actuator is back it
// starts. Pods without a claim start all the same.
func TestActuatorIsKilledAtEachStep(t *testing.T) {
	for name, away := range map[string]struct{ create, start, update, stop bool }{
		"before creation": {create: true},
		"before start":    {start: true},
		"before update":   {update: true},
		"before stop":     {stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, topologytest.T2())
			p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
			require.True(t, n.Allocate(p))
			require.NoError(t, n.Prepare(p))
			n.Check()
			if away.create {
				n.StopActuator(true)
			}
			c, err := n.CreateContainer(p, "main")
			require.NoError(t, err, "NRI lets it pass")
			if away.start {
				n.StopActuator(true)
			}
			err = c.Start()
			if away.create {
				require.ErrorContains(t, err, "cpuset.cpus is unset, the claim's decision is 2,6; ")
			} else {
				require.NoError(t, err, "its spec is right")
				require.Equal(t, "2,6", c.CPUs())
			}
			if away.update {
				n.StopActuator(true)
				require.NoError(t, c.Update())
				require.Equal(t, "2,6", c.CPUs(), "the runtime repeats the spec")
			}
			if away.stop {
				n.StopActuator(true)
				c.Stop()
			}
			plain, err := n.CreateContainer(n.Pod("plain", lab.Burstable, lab.ContainerSpec{Name: "main"}), "main")
			require.NoError(t, err, "I7")
			require.NoError(t, plain.Start(), "I7")
			n.Check()

			n.RestartActuator(true)
			n.Ready()
			n.Check()
			require.Equal(t, "0-1,3-5,7", plain.CPUs(), "it is moved off when there is an actuator again")
			if away.create || away.stop {
				c, err = n.CreateContainer(p, "main")
				require.NoError(t, err)
				require.NoError(t, c.Start())
			}
			require.Equal(t, "2,6", c.CPUs())
			require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
			n.Check()
			require.NoError(t, n.Remove(p))
			n.Check()
		})
	}
}

// A36, I7: without the node file claimless pods start, pods with a claim wait,
// and the frontend writes it again.
func TestNodeFileIsRemoved(t *testing.T) {
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Embedded: true})
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	c := start(t, n, p)[0]
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.NodeFile)))
	plain, err := n.CreateContainer(n.Pod("plain", lab.Burstable, lab.ContainerSpec{Name: "main"}), "main")
	require.NoError(t, err)
	require.NoError(t, plain.Start())
	require.Equal(t, "0-1,3-5,7", plain.CPUs(), "the last known pool")
	_, err = n.CreateContainer(p, "main")
	require.ErrorContains(t, err, "waits for dra-frontend")
	require.Equal(t, "2,6", c.CPUs())

	n.RestartFrontend()
	n.Check()
	again, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	require.Equal(t, "2,6", again.CPUs())
}

// The daemon notices by itself that its node file is gone.
func TestNodeFileIsWrittenAgain(t *testing.T) {
	n := newNode(t, topologytest.T2())
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.NodeFile)))
	n.HasState()
	n.Check()
	require.Equal(t, "0-1,3-5,7", n.Pool())
}

// A36: a claim file removed while its container runs. Nobody but the frontend
// may do that; the container is moved to the pool, whose CPUs they are now.
func TestClaimFileIsRemoved(t *testing.T) {
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	c := start(t, n, p)[0]
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.ClaimFile(string(n.API.ReadClaim("p").UID)))))
	n.WaitPool("0-7")
	n.Check()
	require.Equal(t, "0-7", c.CPUs())
	_, err := n.CreateContainer(p, "main")
	require.Error(t, err)

	// Its CPUs are free: another claim may get them.
	other := podWith(n, "q", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	require.True(t, n.Allocate(other))
	require.Equal(t, "2,6", startAllocated(t, n, other)[0].CPUs())
	require.Equal(t, "0-1,3-5,7", c.CPUs())
}

// A80: an actuator that is away while a container with a claim is created and
// started fails nobody. The guard waits, the actuator that comes back gives the
// container its values, and only then the program may start.
func TestGuardWaitsForTheActuator(t *testing.T) {
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs,
		Configure: func(c *config.Config) { c.GuardWait.Duration = time.Minute }})
	n.Ready()
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	n.StopActuator(true)
	c, err := n.CreateContainer(p, "main")
	require.NoError(t, err, "NRI lets it pass")
	started := make(chan error, 1)
	go func() {
		defer close(started)
		started <- c.Start()
	}()
	require.Eventually(t, c.HasCgroup, time.Minute, time.Millisecond)
	n.StartActuator()
	require.NoError(t, <-started)
	require.Equal(t, "2,6", c.CPUs())
	require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	require.Equal(t, "0-1,3-5,7", pool.CPUs())
	n.Ready()
	n.Check()
}

// A37: the guard on the configuration alone.
func TestGuard(t *testing.T) {
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"}})
	for name, c := range map[string]struct {
		change func(c *lab.Container)
		err    string
	}{
		"right":  {func(*lab.Container) {}, ""},
		"cpus":   {func(c *lab.Container) { c.Spec.Linux.Resources.CPU.Cpus = "2" }, "cpuset.cpus is 2, the claim's decision is 2,6"},
		"mems":   {func(c *lab.Container) { c.Spec.Linux.Resources.CPU.Mems = "" }, "cpuset.mems is unset, the claim's decision is 1"},
		"memory": {func(c *lab.Container) { c.Spec.Linux.Resources.Unified["memory.min"] = "0" }, "memory.min is 0, the claim's decision is 1073741824"},
		"env":    {func(c *lab.Container) { c.Spec.Process.Env = nil }, "the claim's environment was removed on its way"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(p.CDIDevices("p")) == 0 {
				require.True(t, n.Allocate(p))
				require.NoError(t, n.Prepare(p))
			}
			ctr, err := n.CreateContainer(p, "main")
			require.NoError(t, err)
			c.change(ctr)
			err = ctr.Start()
			if c.err == "" {
				require.NoError(t, err)
				ctr.Stop()
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A20: a second pod joins a claim after it was prepared. Kubelet does not ask
// again, but the claim says so, and the pod's container starts on the claim's
// CPUs as soon as the frontend has seen it.
func TestPodThatJoinsALaterClaim(t *testing.T) {
	n := newNode(t, topologytest.T2())
	claim := n.Claim("shared", lab.Request{Name: "r", Zone: "numa-1", Capacity: cpu("2")})
	one := n.Pod("one", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
	first := start(t, n, one)[0]
	late := n.Pod("late", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
	require.True(t, n.Allocate(late))
	require.NoError(t, n.Prepare(late))
	n.Joined(late)
	second := startAllocated(t, n, late)[0]
	require.Equal(t, "2,6", first.CPUs())
	require.Equal(t, first.CPUs(), second.CPUs())
	n.Check()
}
