// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// A36: the runtime restarts 20 times. Each time, values that were changed while it
// was away are repaired. A new pod starts afterwards.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
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

// The runtime goes on without a connected actuator that does not answer (I7). When
// the actuator works again, it repairs the containers that it missed. The test is
// not parallel: the runtime's timeout is one for the process.
func TestActuatorThatDoesNotAnswer(t *testing.T) {
	n := newNode(t, topologytest.T2())
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
	adaptation.SetPluginRequestTimeout(200 * time.Millisecond)
	defer adaptation.SetPluginRequestTimeout(requestTimeout)
	resume := n.PauseActuator()
	missed, err := n.CreateContainer(n.Pod("missed", lab.Burstable, lab.ContainerSpec{Name: "main"}), "main")
	require.NoError(t, err, "I7")
	require.NoError(t, missed.Start(), "I7")
	require.NotEqual(t, "0-1,3-5,7", missed.CPUs(), "the runtime waited for an answer")
	adaptation.SetPluginRequestTimeout(requestTimeout)
	resume()
	require.Eventually(t, func() bool { return missed.CPUs() == "0-1,3-5,7" }, requestTimeout, time.Millisecond)
	require.Equal(t, "0-1,3-5,7", start(t, n, n.Pod("next", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0].CPUs())
	require.Equal(t, 1.0, n.Metric("cpumem_actuator_call_seconds_count", "Synchronize"), "one connection")
}

// A79: with another CDI directory in its configuration and claims in the present
// directory, a frontend does not start. The error says what to do.
func TestCDIDirChangesUnderClaims(t *testing.T) {
	t.Parallel()
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
// container does not run without its decision, and starts when the actuator is
// back. Pods without a claim start without the actuator.
func TestActuatorIsKilledAtEachStep(t *testing.T) {
	t.Parallel()
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

// A36, I7: without the node file, pods without claims start and pods with a claim
// wait. The frontend writes the file again.
func TestNodeFileIsRemoved(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Embedded: true})
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	c := start(t, n, p)[0]
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.NodeFile)))
	plain, err := n.CreateContainer(n.Pod("plain", lab.Burstable, lab.ContainerSpec{Name: "main"}), "main")
	require.NoError(t, err)
	require.NoError(t, plain.Start())
	require.Equal(t, "0-1,3-5,7", plain.CPUs(), "the last known pool")
	_, err = n.CreateContainer(p, "main")
	require.ErrorContains(t, err, "waits until dra-frontend has written the node file")
	require.Equal(t, "2,6", c.CPUs())

	n.RestartFrontend()
	n.Check()
	again, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	require.Equal(t, "2,6", again.CPUs())
}

// The daemon notices the removal of its node file without a restart.
func TestNodeFileIsWrittenAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.NodeFile)))
	n.HasState()
	n.Check()
	require.Equal(t, "0-1,3-5,7", n.Pool())
}

// A36: another program removes a claim file while its container runs. The claim's
// CPUs become the shared pool's, and the container moves to the pool.
func TestClaimFileIsRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	c := start(t, n, p)[0]
	require.NoError(t, os.Remove(filepath.Join(n.CDI, contract.ClaimFile(string(n.API.ReadClaim("p").UID)))))
	n.WaitPool("0-7")
	n.Check()
	require.Equal(t, "0-7", c.CPUs())
	_, err := n.CreateContainer(p, "main")
	require.Error(t, err)

	// The former CPUs are free for another claim.
	other := podWith(n, "q", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	require.True(t, n.Allocate(other))
	require.Equal(t, "2,6", startAllocated(t, n, other)[0].CPUs())
	require.Equal(t, "0-1,3-5,7", c.CPUs())
}

// A80: a container with a claim that is created while the actuator is away does not
// fail. The guard waits until the actuator is back and has written the container's
// values; then the program starts.
func TestGuardWaitsForTheActuator(t *testing.T) {
	t.Parallel()
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

// A37: the guard finds a spec that differs from the decision. The actuator is away
// meanwhile: it would write the decision, sooner or later than the guard looks.
func TestGuard(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"}})
	for name, c := range map[string]struct {
		change func(c *lab.Container)
		err    string
	}{
		"right": {func(*lab.Container) {}, ""},
		"cpus":  {func(c *lab.Container) { c.Spec.Linux.Resources.CPU.Cpus = "2" }, "cpuset.cpus is 2, the claim's decision is 2,6"},
		"mems":  {func(c *lab.Container) { c.Spec.Linux.Resources.CPU.Mems = "" }, "cpuset.mems is unset, the claim's decision is 1"},
		"memory": {
			change: func(c *lab.Container) { c.Spec.Linux.Resources.Unified["memory.min"] = "0" },
			err:    "memory.min is 0, the claim's decision is 1073741824",
		},
		"env": {func(c *lab.Container) { c.Spec.Process.Env = nil }, "the claim's environment was removed on its way"},
	} {
		t.Run(name, func(t *testing.T) {
			if len(p.CDIDevices("p")) == 0 {
				require.True(t, n.Allocate(p))
				require.NoError(t, n.Prepare(p))
			}
			ctr, err := n.CreateContainer(p, "main")
			require.NoError(t, err)
			c.change(ctr)
			n.StopActuator(true)
			err = ctr.Start()
			n.StartActuator()
			n.Ready()
			if c.err == "" {
				require.NoError(t, err)
				ctr.Stop()
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A20: a second pod comes to a prepared claim. Kubelet does not call the frontend
// again, but the claim names the new consumer. When the frontend has read that, the
// pod's container starts on the claim's CPUs.
func TestPodThatJoinsALaterClaim(t *testing.T) {
	t.Parallel()
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

// I1: a container with a claim is refused while a container without a claim cannot be moved
// off the claim's CPUs.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	other := n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"})
	pool := start(t, n, other)[0]
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	require.True(t, n.Allocate(p))
	dir := "kubepods/burstable/pod" + other.UID + "/" + pool.ID
	n.InterceptCgroup(dir, "cpuset.cpus", func(write bool, do func() error) error {
		if write {
			return syscall.EIO
		}
		return do()
	})
	require.NoError(t, n.Prepare(p))
	_, err := n.CreateContainer(p, "main")
	require.ErrorContains(t, err, syscall.EIO.Error())
	require.Equal(t, "0-7", pool.CPUs())

	n.InterceptCgroup(dir, "cpuset.cpus", nil)
	c, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	require.Equal(t, "0-1,3-5,7", pool.CPUs())
	require.NoError(t, c.Start())
	require.Equal(t, "2,6", c.CPUs())
	// The lab's refresh interval is too long to announce the node state again.
	n.RestartActuator(false)
	n.Ready()
	n.Check()
}
