// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// TestForgedVariables covers A60 through the runtime's side of NRI: the answer
// is short, and the runtime keeps the actuator.
func TestForgedVariables(t *testing.T) {
	const name = "DRA_CPUMEM_00000000000040008000000000000099_0"
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("DRA_CPUMEM_%032d_0={}", i)
	}
	for test, env := range map[string][]string{
		"control characters":      {name + "=" + strings.Repeat("\x7f", 600<<10)},
		"quotes":                  {name + "=" + strings.Repeat(`"`, 1900<<10)},
		"multi-byte characters":   {name + "=" + strings.Repeat("é", 950<<10)},
		"a name without a value":  {"DRA_CPUMEM_" + strings.Repeat("\x01", 600<<10)},
		"five thousand variables": many,
	} {
		t.Run(test, func(t *testing.T) {
			h := newHost(t)
			h.startRuntime()
			defer h.stopRuntime()
			h.startActuator()
			h.plugged()
			spec, err := h.create("victim", podA, h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})...)
			require.NoError(t, err)
			require.NoError(t, h.start("victim", spec))

			_, err = h.create("forged", podB, env...)
			require.ErrorContains(t, err, "cpumem: container ns/pod/forged")
			require.LessOrEqual(t, len(err.Error()), 1200)
			for _, entry := range h.logs.All() {
				for key, value := range entry.ContextMap() {
					require.LessOrEqual(t, len(fmt.Sprint(value)), 2000, "log %q, field %q", entry.Message, key)
				}
			}
			spec, err = h.create("next", podB)
			require.NoError(t, err)
			require.Equal(t, "0-3,8-15", spec.Linux.Resources.CPU.Cpus, "the runtime still asks the actuator")
		})
	}
}

// TestRuntimeThatCannotList covers A61: a runtime that cannot put its list of
// containers into messages drops the actuator again and again. Running
// containers keep the right CPUs, and the announcement has the reason.
func TestRuntimeThatCannotList(t *testing.T) {
	h := newHost(t)
	h.config.RefreshInterval = 20 * time.Millisecond
	h.startRuntime()
	d, _ := h.startActuator()
	h.plugged()
	pool, err := h.create("pool", podB)
	require.NoError(t, err)
	require.NoError(t, h.start("pool", pool))
	spec, err := h.create("claimed", podA, h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})...)
	require.NoError(t, err)
	require.NoError(t, h.start("claimed", spec))
	h.node.Prepare(testnode.UID(4), testnode.UID(12), contract.Decision{CPUs: contracttest.CPUs("8")})
	for i := range 8 {
		spec, err := h.create(fmt.Sprintf("large%d", i), podB, "LARGE="+strings.Repeat("x", 1200<<10))
		require.NoError(t, err)
		require.NoError(t, h.start(fmt.Sprintf("large%d", i), spec))
	}
	h.stopRuntime()
	h.startRuntime()
	defer h.stopRuntime()

	var a contract.Announcement
	require.Eventually(t, func() bool {
		a, err = contract.ReadAnnouncement(h.node.CDI)
		return err == nil && !a.Connected && strings.Contains(a.Disconnected, "4 MiB of environment")
	}, patience, pause)
	require.NoError(t, d.Ready(), "one node must not stop the update of all other nodes")
	require.ErrorContains(t, d.ServesClaims(), "not connected")

	// Containers that are created without an NRI call: of a new pod, and of a pod
	// with a claim.
	h.node.AddCgroup("kubepods/burstable/pod" + testnode.UID(3) + "/unseen")
	h.node.AddCgroup("kubepods/pod" + podA + "/unseen")
	require.Eventually(t, func() bool {
		return h.node.File("kubepods/burstable/pod"+testnode.UID(3)+"/unseen", "cpuset.cpus") == "0-3,9-15" &&
			h.cpus(podA, "unseen") == "0-3,9-15"
	}, patience, pause)
	h.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-1") })
	require.Eventually(t, func() bool { return h.cpus(podB, "pool") == "0-1" && h.cpus(podA, "unseen") == "0-1" }, patience, pause)
	require.Equal(t, "4-7", h.cpus(podA, "claimed"), "left alone")

	h.node.Unprepare(podA, claimA, "4-7")
	require.Eventually(t, func() bool { return h.cpus(podA, "claimed") != "4-7" }, patience, pause, "no claim backs it any more")
}

// TestRestartWithoutRuntime covers A61 for an actuator that was never connected:
// it knows no container. Containers on claimed CPUs stay there.
func TestRestartWithoutRuntime(t *testing.T) {
	h := newHost(t)
	h.config.RefreshInterval = 20 * time.Millisecond
	h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	h.node.Prepare(testnode.UID(4), testnode.UID(12), contract.Decision{CPUs: contracttest.CPUs("8")})
	for dir, cpus := range map[string]string{
		"kubepods/pod" + podA + "/claimed": "5", "kubepods/pod" + podA + "/free": "3-4,9", "kubepods/pod" + podA + "/mixed": "3-7",
		"kubepods/pod" + podA + "/all": "", "kubepods/besteffort/pod" + podB + "/pool": "4",
		"kubepods/pod" + podA + "/astray": "5,8",
	} {
		h.node.AddCgroup(dir)
		h.node.SetFile(dir, "cpuset.cpus", cpus)
	}
	h.startActuator()
	pool := "0-3,9-15"
	require.Eventually(t, func() bool {
		return h.node.File("kubepods/besteffort/pod"+podB+"/pool", "cpuset.cpus") == pool &&
			h.cpus(podA, "all") == pool && h.cpus(podA, "astray") == pool
	}, patience, pause)
	require.Equal(t, "5", h.cpus(podA, "claimed"))
	require.Equal(t, "3-4,9", h.cpus(podA, "free"), "of its pod's claim and pool")
	require.Equal(t, "3-7", h.cpus(podA, "mixed"))
}

// TestLargeEnvironmentsAreNotKept: of a container's environment the actuator
// keeps the contract's variables only.
func TestLargeEnvironmentsAreNotKept(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	h.startActuator()
	h.plugged()
	heap := func() uint64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	env := h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	before := heap()
	for i := range 32 {
		_, err := h.create(fmt.Sprintf("c%d", i), podA, env[0], "LARGE="+strings.Repeat("x", 1<<20))
		require.NoError(t, err)
		h.mu.Lock()
		h.containers[len(h.containers)-1].Env = nil
		h.mu.Unlock()
	}
	require.Less(t, heap(), before+8<<20)
}

// TestAnnouncementThatCannotBeWritten covers A66: a full disk does not cost the
// connection.
func TestAnnouncementThatCannotBeWritten(t *testing.T) {
	h := newHost(t)
	h.startActuator()
	// The actuator holds its announcement when it begins to connect.
	require.Eventually(t, func() bool { return h.logs.FilterMessage("not connected to the runtime").Len() > 0 }, patience, pause)
	// No write can replace a directory in the file's place.
	file := filepath.Join(h.node.CDI, contract.ActuatorFile)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.MkdirAll(filepath.Join(file, "x"), 0o755))
	h.startRuntime()
	defer h.stopRuntime()
	require.Eventually(t, func() bool {
		return h.logs.FilterMessage("announcement not written; nri-actuator tries again").Len() > 1
	}, patience, pause)
	require.Eventually(t, func() bool { return h.logs.FilterMessage("synchronising").Len() > 0 }, patience, pause)
	block := h.nri.BlockPluginSync()
	block.Unblock()
	spec, err := h.create("pool", podB)
	require.NoError(t, err)
	require.NotNil(t, spec.Linux.Resources.CPU, "the runtime asks the actuator")
	require.Equal(t, 1, h.logs.FilterMessage("synchronising").Len(), "once")
	require.NoError(t, os.RemoveAll(file))
	h.connected(true)
}

// TestHungRuntime: the actuator can end although the runtime hangs between
// registration and configuration.
func TestHungRuntime(t *testing.T) {
	h := newHost(t)
	registered := h.serveRegistration()
	_, stop := h.startActuator()
	<-registered
	stop()
}

// TestEndDuringAWrite covers A67: the actuator ends although a write into a cgroup
// does not return, so that the next actuator can begin.
func TestEndDuringAWrite(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	_, stop := h.startActuator()
	h.plugged()
	spec, err := h.create("pool", podB)
	require.NoError(t, err)
	require.NoError(t, h.start("pool", spec))
	free := h.node.Block("kubepods/pod"+podB+"/pool", "cpuset.cpus")
	defer free()
	h.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	h.connected(false) // the actuator waits for the kernel
	stop()
	_, err = contract.ReadAnnouncement(h.node.CDI)
	require.ErrorIs(t, err, contract.ErrActuatorDead)
}

// I1: the kernel may keep a write of a call while the actuator ends. Another actuator may be there when the kernel lets the
// write go, so the call writes nothing after it.
func TestEndDuringACall(t *testing.T) {
	h := newHost(t)
	announced := make(chan error, 1)
	h.node.Closes = func() {
		_, err := contract.ReadAnnouncement(h.node.CDI)
		announced <- err
	}
	h.startRuntime()
	defer h.stopRuntime()
	_, stop := h.startActuator()
	h.plugged()
	spec, err := h.create("c", podA, h.node.Prepare(podA, claimA, contract.Decision{
		CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0"),
	})...)
	require.NoError(t, err)
	dir := "kubepods/pod" + podA + "/c"
	waits, freed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.node.Intercept(dir, "cpuset.mems", func(_ bool, do func() error) error {
		once.Do(func() { close(waits) })
		<-freed
		return do()
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_ = h.start("c", spec) // the runtime gives the call up, or loses the connection
	}()
	<-waits
	stop()
	require.NoError(t, <-announced, "the next actuator begins when no cgroup can be opened any more")
	close(freed)
	require.Eventually(t, func() bool { return h.logs.FilterMessage("values not written at the start").Len() > 0 }, patience, pause)
	require.Empty(t, h.node.File(dir, "cpuset.mems"))
	<-answered
}
