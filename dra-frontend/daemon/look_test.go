// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// A72: kubelet has a --cgroup-root. Its CPUs count from the moment at which the actuator names the cgroup of all pods.
func TestCgroupOfAllPodsThatTheActuatorNames(t *testing.T) {
	sys, o := topologytest.T2().Sys(), options(t)
	sys["fs/cgroup/own/kubepods/cpuset.cpus"] = &fstest.MapFile{Data: []byte("2-7\n")}
	for _, f := range sys {
		f.Mode = 0o600
	}
	o.Log, o.Config.SysfsRoot = zap.NewNop(), t.TempDir()
	require.NoError(t, os.CopyFS(o.Config.SysfsRoot, sys))
	dir, err := cdidir.Open(o.Config.CDIDir)
	require.NoError(t, err)
	d := &Daemon{o: o, bootID: "boot", actuator: actuator{contract.NewAnnouncementReader(o.Config.CDIDir)}}
	machine, err := d.discover(topology.Machine{}, "")
	require.NoError(t, err)
	divided, err := o.Config.Divide(machine)
	require.NoError(t, err)
	d.driver = kubelet.New(kubelet.Options{
		Log: o.Log, Lock: cdidir.NewLock(filepath.Join(t.TempDir(), "lock")), Ledger: ledger.New(dir, "boot"), BootID: "boot",
		Inventory: decision.InventoryOf(o.Config, divided, "boot"), Recorder: o.Metrics,
	})
	d.joins = podclaims.NewWatcher(nil, o.Log, d.driver.Join)
	last := d.observeActuator(t.Context(), observation{divided: divided})
	require.Empty(t, last.divided.Machine.Restricted.String(), "no actuator has named it")

	announce(t, o.Config.CDIDir, contract.Announcement{
		V: contract.Version, Versions: []string{contract.Version}, Connected: true, Kubepods: "own/kubepods",
	})
	last = d.observeActuator(t.Context(), last)
	require.NoError(t, last.actuatorFault)
	require.NoError(t, last.blocked)
	require.Equal(t, "0-1", last.divided.Machine.Restricted.String())
	data, err := os.ReadFile(filepath.Join(o.Config.CDIDir, contract.NodeFile))
	require.NoError(t, err)
	node, err := contract.DecodeNode(data)
	require.NoError(t, err)
	require.Equal(t, "2-7", node.Shared.CPUs.String(), "the node state is of this machine")
	require.Equal(t, "0-1", d.observeMachine(last).divided.Machine.Restricted.String(), "at each later look")
}

// A07: a warning about the machine is logged when it is seen first, not at every look.
func TestWarningsAboutTheMachine(t *testing.T) {
	s, dir := topologytest.T2(), t.TempDir()
	sys := s.Sys()
	for _, f := range sys {
		f.Mode = 0o600
	}
	require.NoError(t, os.CopyFS(dir, sys))
	o := options(t)
	core, logs := observer.New(zapcore.WarnLevel)
	o.Log, o.Config.SysfsRoot = zap.New(core), dir
	d := &Daemon{o: o}
	found, err := d.discover(topology.Machine{}, "")
	require.NoError(t, err)
	machine, err := o.Config.Divide(found)
	require.NoError(t, err)
	last, reports := observation{machine: found, divided: machine}, newReporter(o, new(sent).send)
	// look returns the warnings that another look at the machine logs.
	look := func() []observer.LoggedEntry {
		before := last
		last = d.observeMachine(before)
		reports.logNode(before, last)
		return logs.TakeAll()
	}

	// A later look takes sockets, cores and caches from the look before.
	topologyOf1 := filepath.Join(dir, "devices/system/cpu/cpu1/topology")
	require.NoError(t, os.Rename(topologyOf1, topologyOf1+".away"))
	require.Empty(t, look())
	require.NoError(t, os.Rename(topologyOf1+".away", topologyOf1))

	file := filepath.Join(dir, "devices/pci0000:00/pci_bus/0000:00/cpulistaffinity")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte("x\n"), 0o600))
	require.Len(t, look(), 1)
	require.Empty(t, look())

	require.NoError(t, os.WriteFile(file, []byte("0-3\n"), 0o600))
	require.Empty(t, look())
	require.NoError(t, os.WriteFile(file, []byte("x\n"), 0o600))
	again := look()
	require.Len(t, again, 1)
	require.Contains(t, again[0].ContextMap()["warning"], file)
}

// A machine that has changed so that the configuration does not fit it takes no new claims, and what claims lack of it is
// seen all the same.
func TestMachineThatDoesNotFitAnyMore(t *testing.T) {
	spec := topologytest.T2()
	spec.Present = true
	write := func() string {
		dir, sys := t.TempDir(), spec.Sys()
		for _, f := range sys {
			f.Mode = 0o600
		}
		require.NoError(t, os.CopyFS(dir, sys))
		return dir
	}
	o := options(t)
	o.Config.SysfsRoot, o.Config.ManagedCPUs, o.Config.SharedPool.Mode, o.Config.SharedPool.MinCPUs = write(), "2-7", "fixed", 2
	d := &Daemon{o: o}
	found, err := d.discover(topology.Machine{}, "")
	require.NoError(t, err)
	divided, err := o.Config.Divide(found)
	require.NoError(t, err)
	last := observation{machine: found, divided: divided, claims: []contract.ClaimRecord{{Results: []contract.ResultRecord{{
		Device: "numa-0", Decision: contract.Decision{CPUs: contracttest.CPUs("4")},
	}}}}}

	for i := range spec.CPUs {
		spec.CPUs[i].Offline = spec.CPUs[i].ID == 1 || spec.CPUs[i].ID == 4
	}
	d.o.Config.SysfsRoot = write()
	last = d.observeMachine(last)
	got := assess(last, d.o.Config)
	require.ErrorContains(t, got.faults[reasonNodeUnfit],
		"the machine has changed: configuration does not fit this machine: sharedPool.minCPUs 2")
	require.Equal(t, "unfit", got.devices[0].Taints[0].Value)
	require.Contains(t, got.problems["numa-0"], "CPUs 4 of a claim's CPUs 4 are offline")

	for i := range spec.CPUs {
		spec.CPUs[i].Offline = false
	}
	d.o.Config.SysfsRoot = write()
	got = assess(d.observeMachine(last), d.o.Config)
	require.NotContains(t, got.faults, reasonNodeUnfit)
	require.Empty(t, got.problems["numa-0"])

	// The zones of the last machine that fits stay, whatever is added to a machine that does not.
	spec.CPUs[1].Offline = true
	spec.Nodes = append(spec.Nodes, description.Node{ID: 2, Memory: 1 << 30})
	d.o.Config.SysfsRoot = write()
	last.claims[0].Results[0].Device = "socket-0"
	got = assess(d.observeMachine(last), d.o.Config)
	require.Contains(t, got.faults, reasonNodeUnfit)
	require.Len(t, got.devices, 2)
}

// A file of kubelet that was replaced is not seen through its mount: the frontend ends, and its new container sees the file.
func TestReplacedFileEndsTheFrontend(t *testing.T) {
	o := options(t)
	o.Config.KubeletRootDir = t.TempDir()
	state := filepath.Join(o.Config.KubeletRootDir, "state")
	require.NoError(t, os.WriteFile(state, []byte(`{"policyName":"none"}`), 0o600))
	mounted, err := os.Open(state)
	require.NoError(t, err)
	defer mounted.Close()
	require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", mounted.Fd()), filepath.Join(o.Config.KubeletRootDir, "cpu_manager_state")))
	d := &Daemon{o: o}
	_, err = d.observeFitness(observation{})
	require.NoError(t, err)
	require.NoError(t, os.Remove(state))
	_, err = d.observeFitness(observation{})
	require.ErrorIs(t, err, preflight.ErrReplaced)
	require.ErrorContains(t, err, "the container is started again")
}
