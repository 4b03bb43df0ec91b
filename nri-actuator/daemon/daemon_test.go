// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
)

var (
	podA, podB = testnode.UID(1), testnode.UID(2)
	claimA     = testnode.UID(11)
)

// TestThroughTheRuntime covers A30 to A32 and A35 with the code of real runtimes
// for NRI and for applying an answer to an OCI spec.
func TestThroughTheRuntime(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	unfinished := filepath.Join(h.node.CDI, "."+machine.SavedFile+".tmp-1")
	require.NoError(t, os.WriteFile(unfinished, nil, 0o600))
	d, _ := h.startActuator()
	h.plugged()
	require.NoFileExists(t, unfinished, "of an actuator that was killed")
	a, err := contract.ReadAnnouncement(h.node.CDI)
	require.NoError(t, err)
	require.Equal(t, "containerd", a.Runtime)
	require.Equal(t, "v2.2.7", a.RuntimeVersion)
	require.NotEmpty(t, a.NRIVersion)
	require.Equal(t, os.Getpid(), a.PID)
	require.Equal(t, h.node.State.Generation, a.Generation)
	require.FileExists(t, a.Guard)

	pool, err := h.create("pool", podB)
	require.NoError(t, err)
	require.Equal(t, "0-15", pool.Linux.Resources.CPU.Cpus, "A31")
	require.NoError(t, h.start("pool", pool))

	env := h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7"),
		Mems: contracttest.NUMANodes("0"), Hugepages: map[string]contract.Limit{"2Mi": 4 << 20},
		Memory: &contract.Memory{Min: 4096, High: contract.Max, Max: 8192}})
	spec, err := h.create("exclusive", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "0-3,8-15", h.cpus(podB, "pool"), "A32")
	require.Equal(t, "4-7", spec.Linux.Resources.CPU.Cpus, "A30")
	require.Equal(t, "0", spec.Linux.Resources.CPU.Mems)
	require.Equal(t, map[string]string{"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192",
		"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304"}, spec.Linux.Resources.Unified)
	require.NoError(t, h.start("exclusive", spec))

	reply, err := h.nri.UpdateContainer(t.Context(), &adaptation.UpdateContainerRequest{Pod: h.pods[1], Container: h.containers[1],
		LinuxResources: &api.LinuxResources{Unified: map[string]string{"memory.min": "0", "memory.low": "0"}}})
	require.NoError(t, err)
	require.Len(t, reply.Update, 1)
	require.Equal(t, "4096", reply.Update[0].Linux.Resources.Unified["memory.min"], "A35")
	require.Equal(t, "4-7", reply.Update[0].Linux.Resources.Cpu.Cpus)

	_, err = h.create("forged", podB, env...)
	require.ErrorContains(t, err, "not prepared for this pod")
	require.NotEmpty(t, h.logs.FilterMessage("creation refused").All(), "hooks log with the daemon's logger")

	require.NoError(t, d.Alive())
	require.NoError(t, d.ServesClaims())
	families, err := h.registry.Gather()
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
		return f.GetName() == "cpumem_actuator_call_seconds" && slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool {
			return strings.Contains(m.String(), `"CreateContainer"`) && strings.Contains(m.String(), `"failed"`)
		})
	}))
}

// TestNodeStateIsFollowed covers A32: the CPUs of running pool containers grow
// and shrink when the frontend writes, without an NRI call.
func TestNodeStateIsFollowed(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	h.startActuator()
	h.plugged()
	pool, err := h.create("pool", podB)
	require.NoError(t, err)
	require.NoError(t, h.start("pool", pool))
	for i := range 20 {
		cpus := fmt.Sprintf("%d-15", i%8)
		h.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs(cpus) })
		require.Eventually(t, func() bool {
			a, err := contract.ReadAnnouncement(h.node.CDI)
			return err == nil && a.Generation == h.node.State.Generation
		}, patience, pause)
		require.Equal(t, cpus, h.cpus(podB, "pool"))
	}
}

// TestRuntimeRestarts covers A36: the runtime restarts 20 times. Each time the
// actuator connects again and repairs the values that changed meanwhile.
func TestRuntimeRestarts(t *testing.T) {
	h := newHost(t)
	d, _ := h.startActuator()
	h.connected(false)
	require.Eventually(t, func() bool {
		err := d.ServesClaims()
		return d.Alive() == nil && err != nil && strings.Contains(err.Error(), "not connected")
	}, patience, pause)
	h.startRuntime()
	h.plugged()
	spec, err := h.create("exclusive", podA, h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})...)
	require.NoError(t, err)
	require.NoError(t, h.start("exclusive", spec))
	for range 20 {
		h.stopRuntime()
		h.connected(false)
		h.node.SetFile("kubepods/pod"+podA+"/exclusive", "cpuset.cpus", "0")
		h.startRuntime()
		h.plugged()
		require.Equal(t, "4-7", h.cpus(podA, "exclusive"))
	}
	h.stopRuntime()
}

// TestActuatorRestarts covers A36 and I4: the actuator continues from the files,
// and the frontend sees when no actuator runs.
func TestActuatorRestarts(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	_, stop := h.startActuator()
	h.plugged()
	guard := h.connected(true).Guard
	env := h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	for i := range 5 {
		stop()
		_, err := contract.ReadAnnouncement(h.node.CDI)
		require.ErrorIs(t, err, contract.ErrActuatorDead)
		_, stop = h.startActuator()
		h.plugged()
		require.Equal(t, guard, h.connected(true).Guard, "the same program, the same path")
		id := fmt.Sprintf("c%d", i)
		spec, err := h.create(id, podA, env...)
		require.NoError(t, err)
		require.Equal(t, "4-7", spec.Linux.Resources.CPU.Cpus)
		require.NoError(t, h.start(id, spec))
	}
	entries, err := os.ReadDir(h.config.GuardDir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestFilesLost covers A36 and I7: without the node file containers without
// claims start, and the actuator notices a new node file.
func TestFilesLost(t *testing.T) {
	h := newHost(t)
	h.config.RefreshInterval = 10 * time.Millisecond
	h.startRuntime()
	defer h.stopRuntime()
	d, _ := h.startActuator()
	h.plugged()
	require.NoError(t, os.Remove(filepath.Join(h.node.CDI, contract.NodeFile)))
	spec, err := h.create("pool", podB)
	require.NoError(t, err)
	require.Nil(t, spec.Linux.Resources.CPU)
	require.NoError(t, h.start("pool", spec))
	require.ErrorContains(t, d.ServesClaims(), "dra-frontend")

	require.NoError(t, os.Remove(filepath.Join(h.node.CDI, contract.ActuatorFile)))
	h.connected(true)
	h.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	require.Eventually(t, func() bool { return h.cpus(podB, "pool") == "0-3" }, patience, pause)
}

// TestSecondActuatorWaits: two actuators would fail each other's containers.
func TestSecondActuatorWaits(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	held, err := announcement.New(h.node.CDI, contract.Announcement{V: contract.Version, PID: 1})
	require.NoError(t, err)
	d, _ := h.startActuator()
	require.Eventually(t, func() bool { return h.logs.FilterMessage("waiting for the other nri-actuator to end").Len() > 0 }, patience, pause)
	require.NoError(t, d.Ready(), "or a rollout would wait for itself")
	require.ErrorContains(t, d.ServesClaims(), "another nri-actuator")
	require.NoError(t, held.Close())
	h.connected(true)
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*daemon.Config)
		err    string
	}{
		"cdi dir":     {func(c *daemon.Config) { c.CDIDir = "cdi" }, "--cdi-dir"},
		"socket":      {func(c *daemon.Config) { c.NRISocket = "" }, "--nri-socket"},
		"guard dir":   {func(c *daemon.Config) { c.GuardDir = "/opt/../opt" }, "--guard-dir"},
		"name":        {func(c *daemon.Config) { c.PluginName = "" }, "--plugin-name"},
		"index":       {func(c *daemon.Config) { c.PluginIndex = "9" }, "--plugin-index"},
		"refresh":     {func(c *daemon.Config) { c.RefreshInterval = 0 }, "--refresh-interval"},
		"cgroup v1":   {func(c *daemon.Config) { c.CgroupRoot = c.CDIDir }, "not a cgroup v2 mount"},
		"unit dir":    {func(c *daemon.Config) { c.UnitDir = "units" }, "--unit-dir"},
		"system bus":  {func(c *daemon.Config) { c.SystemBus = "bus" }, "--system-bus"},
		"proc root":   {func(c *daemon.Config) { c.ProcRoot = "proc" }, "--proc-root"},
		"irq dir":     {func(c *daemon.Config) { c.IRQDir = "irq" }, "--irq-dir"},
		"cgroup root": {func(c *daemon.Config) { c.CgroupRoot = "x" }, "--cgroup-root"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			c.change(&h.config)
			_, err := daemon.New(h.config, cgroups.Open, nil)
			require.ErrorContains(t, err, c.err)
		})
	}
}
