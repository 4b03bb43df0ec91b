// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// A06, I1: a container that cannot run on any of its claimed CPUs runs in the shared pool. The
// kernel would let it run on another claim's CPUs. It leaves CPUs of the pool that a later
// claim gets, and has its own CPUs again when one of them can be used.
func TestNoUsableCPU(t *testing.T) {
	for name, change := range map[string]func(r *runtime) (back func()){
		"offline": func(r *runtime) (back func()) {
			r.node.SetOnline(false, 4, 5)
			return func() { r.node.SetOnline(true, 5) }
		},
		"in another program's partition": func(r *runtime) (back func()) {
			r.node.AddCgroup("system/service")
			for _, dir := range []string{"system", "system/service"} {
				r.node.SetFile(dir, contract.FileExclusive, "4-5")
			}
			r.node.SetFile("system/service", contract.FilePartition, "root")
			return func() { r.node.SetFile("system/service", contract.FilePartition, "member") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			a := r.run("a", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
			b := r.run("b", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("6-7")})...)
			effective := func(c *container) string { return r.node.File(c.dir, "cpuset.cpus.effective") }

			back := change(r)
			require.Equal(t, "0-3,6-15", effective(a), "the kernel's choice")
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "0-3,8-15", effective(a))
			require.Equal(t, "6-7", effective(b))

			r.run("c", podC, r.node.Prepare(podC, testnode.UID(13), contract.Decision{CPUs: contracttest.CPUs("8-9")})...)
			require.Equal(t, "0-3,10-15", effective(a), "a claim has CPUs that were the pool's")

			back()
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "4-5", r.cpus(a))
			require.Contains(t, []string{"4-5", "5"}, effective(a))
		})
	}
}

// A container with one CPU left keeps its claim's CPUs.
func TestSomeUsableCPU(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	r.node.SetOnline(false, 4)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-5", r.cpus(c))
}

// A container that was not started gets its claim's CPUs even if none can be used: its guard
// refuses it then.
func TestNoUsableCPUBeforeTheStart(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("pool", podB)
	c := r.waiting("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.SetOnline(false, 4, 5, 6, 7)
	r.connect()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
}

// I1: the CPUs come back, and a claim takes CPUs of the pool before everything is looked at, or
// after a look at which the container could not be written. The container leaves these CPUs.
func TestUsableAgainBeforeTheNextLook(t *testing.T) {
	for name, look := range map[string]func(r *runtime) error{
		"no look": nil,
		"a look":  func(r *runtime) error { return r.plugin.Apply(context.Background()) },
		"a list":  func(r *runtime) error { return r.synchronize() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			a := r.run("a", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
			r.node.SetOnline(false, 4, 5)
			require.NoError(t, r.plugin.Apply(t.Context()))
			r.node.SetOnline(true, 5)
			if look != nil {
				back := r.node.FailWrites(a.dir, "cpuset.cpus", syscall.EIO)
				_ = look(r)
				back()
			}
			r.run("b", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("8-9")})...)
			require.False(t, testnode.Overlap(r.node.File(a.dir, "cpuset.cpus.effective"), "8-9"))
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "4-5", r.cpus(a))
		})
	}
}

// I1: while it is unknown which CPUs a container can use, it stays where it is.
func TestUsableCPUsUnknown(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	unknown := func(want string) {
		t.Helper()
		for _, dir := range []string{"kubepods/burstable", c.dir} {
			back := r.node.Fail(dir, "cpuset.cpus.effective", syscall.EIO)
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, want, r.cpus(c))
			back()
		}
	}
	r.node.SetOnline(false, 4, 5)
	unknown("4-5")
	require.NoError(t, r.plugin.Apply(t.Context()))
	unknown("0-3,6-15")
}

// A container with a partition keeps its CPUs.
func TestNoUsableCPUOfAPartition(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-5", contract.PartitionRoot))...)
	r.node.SetFile(c.dir, contract.FilePartition, "member")
	back := r.node.FailWrites(c.dir, contract.FilePartition, syscall.EIO)
	r.node.SetOnline(false, 4, 5)
	_ = r.plugin.Apply(t.Context())
	require.Equal(t, "4-5", r.cpus(c))
	back()
}

// I1: an update of the container by the runtime does not bring it back to CPUs that it cannot use.
func TestUpdateWithoutUsableCPU(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	r.node.SetOnline(false, 4, 5)
	require.NoError(t, r.plugin.Apply(t.Context()))
	update, err := r.session.UpdateContainer(t.Context(), c.pod, c.api, nil)
	require.NoError(t, err)
	require.Equal(t, "0-3,6-15", update[0].GetLinux().GetResources().GetCpu().GetCpus())
	require.NoError(t, r.update(c))
	require.Equal(t, "0-3,6-15", r.cpus(c))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
}

// A new actuator finds out by itself, and a lost connection changes nothing.
func TestNoUsableCPUAfterARestart(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	r.node.SetOnline(false, 4, 5)
	r.connect()
	require.Equal(t, "0-3,6-15", r.cpus(c))
	r.connect()
	require.Equal(t, "0-3,6-15", r.cpus(c))
	require.NoError(t, r.synchronize())
	require.Equal(t, "0-3,6-15", r.cpus(c))
	r.node.SetOnline(true, 4)
	require.NoError(t, r.synchronize())
	require.Equal(t, "4-5", r.cpus(c))
}

// The CPUs of a container are looked up in its own level: another client of the runtime may have
// cgroups of the same name with fewer CPUs.
func TestUsableCPUsOfAnotherKubepods(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	a := r.run("a", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	x := r.foreign("x", podB)
	r.node.AddCgroup("other/kubepods")
	r.node.SetFile("other", "cpuset.cpus", "0-3")
	x.dir = "other/kubepods/pod" + podB + "/x"
	x.pod.Linux.CgroupParent, x.api.Linux.CgroupsPath = "/other/kubepods/pod"+podB, "/"+x.dir
	r.node.AddCgroup(x.dir)
	require.NoError(t, r.synchronize())
	for range 30 {
		_ = r.plugin.Apply(t.Context())
		require.Equal(t, "4-5", r.cpus(a))
	}
}

// The levels of kubelet's pods are known beside a pod of another client of the runtime, which comes first, also if kubelet's
// kubepods is not right below the mount and the other one is.
func TestLevelsBesideAnotherKubepods(t *testing.T) {
	for name, c := range map[string]struct {
		ours, theirs string
		claim        bool
	}{
		"below the mount":      {ours: "kubepods", theirs: "other/kubepods"},
		"a pod with claims":    {ours: "kubelet/kubepods", theirs: "kubepods", claim: true},
		"a pod below the root": {ours: "kubepods", theirs: "other/kubepods", claim: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			if c.claim {
				r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})
			}
			for id, kubepods := range map[string]string{"a": c.theirs, "b": c.ours} {
				uid := podB
				if id == "b" {
					uid = podA
				}
				x := r.foreign(id, uid)
				pod := kubepods + "/burstable/pod" + uid
				x.dir = pod + "/" + id
				x.pod.Linux.CgroupParent, x.api.Linux.CgroupsPath = "/"+pod, "/"+x.dir
				r.node.AddCgroup(x.dir)
			}
			r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
			require.NoError(t, r.synchronize())
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "4096", r.node.File(c.ours, "memory.min"))
			require.NotEqual(t, "4096", r.node.File(c.theirs, "memory.min"))
		})
	}
}

// A container whose own cgroup another program made a partition keeps its claim's CPUs.
func TestUsableCPUsOfAForeignPartition(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-5")})...)
	for _, dir := range []string{"kubepods", "kubepods/burstable", r.podDir(podA), c.dir} {
		r.node.SetFile(dir, contract.FileExclusive, "4-5")
	}
	r.node.SetFile(c.dir, contract.FilePartition, "root")
	require.Equal(t, "4-5", r.node.File(c.dir, "cpuset.cpus.effective"))
	var written []string
	r.node.Intercept(c.dir, "cpuset.cpus", func(write bool, do func() error) error {
		if write {
			written = append(written, "cpuset.cpus")
		}
		return do()
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-5", r.cpus(c))
	require.Empty(t, written)
}
