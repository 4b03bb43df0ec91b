// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
)

// machineFiles are the files of a machine with one interrupt, in a directory.
type machineFiles struct {
	t   *testing.T
	dir string
}

func newMachineFiles(t *testing.T) machineFiles {
	m := machineFiles{t, t.TempDir()}
	m.set("irq/default_smp_affinity", "ffff")
	m.set("irq/24/smp_affinity_list", "0-15")
	m.set("irq/24/eth0/x", "")
	m.set("cpu/cpu0/power/pm_qos_resume_latency_us", "0")
	m.set("cpu/cpu4/power/pm_qos_resume_latency_us", "0")
	return m
}

func (m machineFiles) dirs() machine.Dirs {
	return machine.Dirs{IRQ: m.dir + "/irq", CPU: m.dir + "/cpu"}
}

func (m machineFiles) set(file, content string) {
	require.NoError(m.t, os.MkdirAll(filepath.Dir(filepath.Join(m.dir, file)), 0o755))
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, file), []byte(content+"\n"), 0o644))
}

func (m machineFiles) get(file string) string {
	data, err := os.ReadFile(filepath.Join(m.dir, file))
	require.NoError(m.t, err)
	return strings.TrimSpace(string(data))
}

// quietDecision is a decision for CPU 4 without interrupts and with a latency.
func quietDecision() contract.Decision {
	return contract.Decision{
		CPUs: contracttest.CPUs("4"), Requires: []string{contract.FeatureInterrupts, contract.FeatureWakeupLatency},
	}
}

// quietNode is the node state with that decision's machine.
func quietNode(s *contract.NodeState) {
	s.Machine = contract.Machine{
		InterruptCPUs: contracttest.CPUs("0-3,5-15"),
		CPUs:          []contract.CPUFiles{{CPUs: contract.CPUs(4), Files: map[string]string{contract.FileWakeupLatency: "20"}}},
	}
}

func newQuietRuntime(t *testing.T, files machineFiles) *runtime {
	r := newRuntime(t, t.TempDir())
	r.machine = files.dirs()
	r.connect()
	return r
}

// The machine has the values before the container's program runs (I5), and gets its former
// values back when the claim goes (I3).
func TestMachineOfAClaim(t *testing.T) {
	files := newMachineFiles(t)
	r := newQuietRuntime(t, files)
	require.Subset(t, r.announced.Features, []string{contract.FeatureInterrupts, contract.FeatureWakeupLatency})
	require.NotContains(t, r.announced.Features, contract.FeatureFrequency)
	r.node.State.Machine = contract.Machine{}
	quietNode(&r.node.State)
	env := r.node.Prepare(podA, claimA, quietDecision())
	_, err := r.create("c", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "0-3,5-15", files.get("irq/24/smp_affinity_list"))
	require.Equal(t, "20", files.get("cpu/cpu4/power/pm_qos_resume_latency_us"))
	require.Equal(t, "0", files.get("cpu/cpu0/power/pm_qos_resume_latency_us"))
	require.FileExists(t, filepath.Join(r.node.CDI, machine.SavedFile))

	r.connect() // another actuator
	r.node.State.Machine = contract.Machine{}
	r.node.Unprepare(podA, claimA, "4")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-15", files.get("irq/24/smp_affinity_list"))
	require.Equal(t, "0000ffff", files.get("irq/default_smp_affinity"))
	require.Equal(t, "0", files.get("cpu/cpu4/power/pm_qos_resume_latency_us"))
	require.NoFileExists(t, filepath.Join(r.node.CDI, machine.SavedFile))
}

// A claim whose value cannot be written waits, with the kernel's words. Another claim's
// container is created.
func TestMachineThatRefuses(t *testing.T) {
	files := newMachineFiles(t)
	r := newQuietRuntime(t, files)
	quietNode(&r.node.State)
	latency := filepath.Join(files.dir, "cpu/cpu4/power/pm_qos_resume_latency_us")
	require.NoError(t, os.Remove(latency))
	require.NoError(t, os.Symlink("cpu", latency)) // reading it fails as well
	env := r.node.Prepare(podA, claimA, quietDecision())
	other := r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("6")})
	r.run("other", podB, other...)
	r.run("plain", podB)
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err, `its claim requires "wakeupLatency"`)
	require.ErrorContains(t, err, "cpu4/power/pm_qos_resume_latency_us")

	// All other values are applied, and the frontend must know that.
	announced := r.announces()
	require.NotEmpty(t, announced.MachineFaults)
	require.Equal(t, r.node.State.Generation, announced.Generation)

	require.NoError(t, os.Remove(latency))
	files.set("cpu/cpu4/power/pm_qos_resume_latency_us", "0")
	r.run("c", podA, env...)
	require.Empty(t, r.announces().MachineFaults)
}

// A container that was created without the actuator gets its decision, for which its guard
// waits, after the machine has the values.
func TestMachineOfAWaitingContainer(t *testing.T) {
	files := newMachineFiles(t)
	r := newQuietRuntime(t, files)
	env := r.node.Prepare(podA, claimA, quietDecision())
	r.addPod(podA)
	pod := sandbox(podA)
	c := &container{pod: pod, dir: r.podDir(podA) + "/c", api: &api.Container{Id: "c", PodSandboxId: pod.Id, Name: "c", Env: env,
		State: api.ContainerState_CONTAINER_CREATED, Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"}}}
	r.containers["c"] = c
	r.node.Change(quietNode)
	r.connect()
	files.set("cpu/cpu4/power/pm_qos_resume_latency_us", "0")
	r.node.AddCgroup(c.dir)
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "4", r.cpus(c))
	require.Equal(t, "20", files.get("cpu/cpu4/power/pm_qos_resume_latency_us"))
}

// Without a guard, the start of a container that was created without the actuator is refused while the machine lacks a value that
// its claim requires (I5).
func TestMachineAtTheStartWithoutAGuard(t *testing.T) {
	files := newMachineFiles(t)
	r := newQuietRuntime(t, files)
	quietNode(&r.node.State)
	latency := filepath.Join(files.dir, "cpu/cpu4/power/pm_qos_resume_latency_us")
	require.NoError(t, os.Remove(latency))
	c := r.waiting("c", podA, r.node.Prepare(podA, claimA, quietDecision())...)
	r.connect()
	require.ErrorContains(t, r.start(c), `its claim requires "wakeupLatency"`)
	files.set("cpu/cpu4/power/pm_qos_resume_latency_us", "0")
	require.NoError(t, r.start(c))
	require.Equal(t, "20", files.get("cpu/cpu4/power/pm_qos_resume_latency_us"))
}

// refusing is a machine whose kernel refuses to write a file.
type refusing struct {
	machine.Dirs
	file *string
}

func (r refusing) Write(file, content string) error {
	if file == *r.file {
		return syscall.EIO
	}
	return r.Dirs.Write(file, content)
}

// A former value that cannot be given back is not announced: no claim lacks it, and the next claim is created.
func TestFormerValueThatIsRefused(t *testing.T) {
	files := newMachineFiles(t)
	files.set("cpu/cpu6/power/pm_qos_resume_latency_us", "0")
	r, refused := newRuntime(t, t.TempDir()), ""
	r.machine = refusing{files.dirs(), &refused}
	r.connect()
	r.node.Change(func(s *contract.NodeState) {
		quietNode(s)
		s.Machine.CPUs[0].CPUs = contract.CPUs(4, 6)
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	refused = "cpu/cpu6/power/pm_qos_resume_latency_us"
	r.node.Change(quietNode)
	r.run("c", podA, r.node.Prepare(podA, claimA, quietDecision())...)
	require.Empty(t, r.announces().MachineFaults)
	require.FileExists(t, filepath.Join(r.node.CDI, machine.SavedFile))
}

// The announcement names interrupts that stay, few of them.
func TestFixedInterruptsAreAnnounced(t *testing.T) {
	files := newMachineFiles(t)
	for n := range 40 {
		files.set("irq/"+strconv.Itoa(100+n)+"/disk/x", "")
		files.set("irq/"+strconv.Itoa(100+n)+"/effective_affinity_list", "4")
	}
	files.set("irq/24/effective_affinity_list", "4")
	r := newQuietRuntime(t, files)
	r.node.Change(quietNode)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Len(t, r.announced.FixedInterrupts, 32)
	require.Equal(t, "4", r.announced.FixedInterrupts["100 disk"])
	r.node.Change(func(s *contract.NodeState) { s.Machine = contract.Machine{} })
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.FixedInterrupts)
}

// TestQuota checks that a claim's container has no quota, whatever its spec says and
// kubelet updates, and that the pod's own quota makes room and comes back.
func TestQuota(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.addPod(podA)
	r.node.SetFile(r.podDir(podA), contract.FileQuota, "150000 100000")
	r.node.Change(func(s *contract.NodeState) {
		s.Pods[podA] = contract.PodState{Claims: []string{claimB}, Quota: "350000 100000", Requires: []string{contract.FeatureQuota}}
	})
	env := r.node.Prepare(podA, claimA, contract.Decision{
		CPUs: contracttest.CPUs("4-5"), Quota: contract.QuotaNone, Requires: []string{contract.FeatureQuota},
	})
	c, err := r.create("c", podA, env...)
	require.NoError(t, err)
	require.Equal(t, contract.NoQuota, c.spec[contract.FileQuota])
	require.NoError(t, r.start(c))
	require.Equal(t, "350000 100000", r.node.File(r.podDir(podA), contract.FileQuota))

	r.node.SetFile(c.dir, contract.FileQuota, "50000 100000")
	require.NoError(t, r.plugin.Refresh(t.Context()))
	require.Equal(t, contract.NoQuota, r.node.File(c.dir, contract.FileQuota), "drift is repaired")
	c.spec[contract.FileQuota] = "50000 100000"
	require.NoError(t, r.update(c))
	require.Equal(t, contract.NoQuota, r.node.File(c.dir, contract.FileQuota))

	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-5")
	require.NoError(t, r.plugin.Refresh(t.Context()))
	require.Equal(t, "150000 100000", r.node.File(r.podDir(podA), contract.FileQuota), "I3")
}

// I7: without a node file a container without a claim starts, also beside a container with claimed CPUs.
func TestStartWithoutANodeFile(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	plain := r.waiting("plain", podB)
	r.node.SetFile(plain.dir, "cpuset.cpus", "0-15")
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.connect() // an actuator that never had a node state
	ctx, kept := observed(t)
	require.NoError(t, r.session.StartContainer(ctx, plain.pod, plain.api))
	require.Zero(t, kept.FilterMessage("values not written at the start").Len())
}
