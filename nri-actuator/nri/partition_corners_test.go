// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// The cgroups above a container name its partition's CPUs from its creation to its end,
// also when its claim is released before it starts: the runtime may be making the
// partition, and some kernels lose CPUs that go from above a partition.
func TestPartitionThatIsBeingMade(t *testing.T) {
	for name, meanwhile := range map[string]func(*runtime){
		"connected": func(*runtime) {}, "after a reconnection": func(r *runtime) { r.reconnect() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
			require.NoError(t, err)
			meanwhile(r)
			r.node.Unprepare(podA, claimA, "4-7")
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "4-7", r.node.File(r.podDir(podA), contract.FileExclusive))
			require.NoError(t, r.remove(c))
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Empty(t, r.node.File(r.podDir(podA), contract.FileExclusive))
		})
	}
}

// A container whose start failed does not keep its partition's CPUs from others after its pod has
// ended: the runtime reports no end of the container while its pod's object exists.
func TestPartitionOfAFailedStart(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	_, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	level := path.Dir(r.podDir(podA))
	require.Equal(t, "4-7", r.node.File(level, contract.FileExclusive))
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.RemoveCgroup(r.podDir(podA))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.node.File(level, contract.FileExclusive))
}

// I1: a container that was forgotten with its pod's cgroup, and starts all the same, is refused: another claim has
// its CPUs.
func TestForgottenContainerThatStarts(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.RemoveCgroup(r.podDir(podA))
	require.NoError(t, r.plugin.Apply(t.Context()))
	other := r.run("other", podB, r.node.Prepare(podB, claimB, quad())...)
	r.addPod(podA)
	require.ErrorContains(t, r.start(c), "claim")
	require.Equal(t, "4-7", r.cpus(other))
}

// A lost partition that another program makes again is no loss any more.
func TestPartitionThatComesBack(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	back := r.node.Fail("kubepods", contract.FileExclusive, syscall.EIO)
	require.Error(t, r.plugin.Apply(t.Context()))
	require.Len(t, r.announced.InvalidPartitions, 1)
	back()
	r.node.SetFile("kubepods", contract.FileExclusive, "4-7")
	r.node.SetFile(c.dir, contract.FilePartition, contract.PartitionRoot)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.InvalidPartitions)
}

// A partition that cannot be read is an error, also when the cgroups above name none of
// its CPUs.
func TestPartitionThatCannotBeRead(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	r.node.Intercept("kubepods", contract.FileExclusive, func(write bool, do func() error) error {
		if write {
			return nil // another program overwrites it at once
		}
		return do()
	})
	r.node.Fail(c.dir, contract.FilePartition, syscall.EIO)
	require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
}

// A container may end between the writes and the look at its partition: that is no error.
func TestPartitionThatEndsMeanwhile(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	reads, last := 0, 0
	r.node.Intercept(c.dir, contract.FilePartition, func(_ bool, do func() error) error {
		if reads++; last > 0 && reads >= last {
			return syscall.ENODEV
		}
		return do()
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Positive(t, reads)
	reads, last = 0, reads
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.GreaterOrEqual(t, reads, last)
}

// A partition that was made again is one when the kernel says so.
func TestPartitionMadeAgainIsReadBack(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	wrote := false
	back := r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
		if wrote && !write {
			return syscall.EIO
		}
		wrote = wrote || write
		return do()
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.True(t, wrote)
	require.Contains(t, r.announced.InvalidPartitions[claimA], "input/output error")
	back()
	r.later(time.Hour)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.InvalidPartitions)
}

// A partition that does not end keeps its CPUs in its own cgroup: nothing else is written
// there.
func TestNothingIsWrittenBelowAPartitionThatStays(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
		if write {
			return syscall.EIO
		}
		return do()
	})
	var written []string
	for _, file := range []string{contract.FileExclusive, "cpuset.cpus"} {
		r.node.Intercept(c.dir, file, func(write bool, do func() error) error {
			if write {
				written = append(written, file)
			}
			return do()
		})
	}
	require.Error(t, r.plugin.Apply(t.Context()))
	require.Empty(t, written)
	require.Equal(t, "4-7", r.node.File(r.podDir(podA), contract.FileExclusive))
}

// A pod gives its partition CPUs back also when another program has taken them from the
// levels above it.
func TestExclusiveGivenBackBelowALevelWithout(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, r.remove(c))
	require.Equal(t, "4-7", r.node.File(r.podDir(podA), contract.FileExclusive))
	r.run("plain", podA)
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.SetFile("kubepods", contract.FileExclusive, "")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.node.File(r.podDir(podA), contract.FileExclusive))
	require.Empty(t, r.node.File("kubepods/burstable", contract.FileExclusive))
}

// The runtime makes a container's partition. Until the container starts, no call makes
// it: the runtime is writing.
func TestPartitionOfTheRuntime(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	require.NoError(t, r.session.PostUpdateContainer(t.Context(), c.pod, c.api))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.NoError(t, r.start(c))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
}

// The kernel lets no two siblings name the same CPU. While another program has written a
// claim's CPUs into another pod, the claim's pod waits, also if the levels name none yet.
func TestExclusiveOfAnotherProgramInASibling(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	for _, uid := range []string{podA, podB} {
		r.run("c-"+uid, uid)
	}
	r.node.SetFile(r.podDir(podB), contract.FileExclusive, "4-7")
	require.Empty(t, r.node.File("kubepods", contract.FileExclusive))
	r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.node.File(r.podDir(podA), contract.FileExclusive))
	r.node.SetFile(r.podDir(podB), contract.FileExclusive, "")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.node.File(r.podDir(podA), contract.FileExclusive))
}

// A partition that the kernel refuses becomes a member, whether the write returns an error
// or the file has a reason: some kernels give the CPUs of an invalid partition to no cgroup.
func TestRefusedPartitionIsAMember(t *testing.T) {
	for name, err := range map[string]error{"invalid": nil, "error": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
			c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
			r.loseAbove(c, "kubepods")
			refused := false
			back := r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
				if failed := do(); failed != nil || !write || refused || r.node.File(c.dir, contract.FilePartition) != contract.PartitionRoot {
					return failed
				}
				refused = true
				r.loseAbove(c, "kubepods") // another program is quicker
				return err
			})
			_ = r.plugin.Apply(t.Context())
			require.True(t, refused)
			require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
			require.Len(t, r.announced.InvalidPartitions, 1)
			back()
			r.later(time.Hour)
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
		})
	}
}

// A member is made a partition with one write: each write of the file has the kernel look
// at all partitions.
func TestMemberIsMadeAPartitionWithOneWrite(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.SetFile(c.dir, contract.FilePartition, "member")
	writes := 0
	r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
		if write {
			writes++
		}
		return do()
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, 1, writes)
}

// A pod without known containers gets back the partition CPUs that another program wrote
// before this driver.
func TestFormerPartitionCPUsOfAPodWithoutContainers(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB)
	r.addPod(podA)
	r.node.SetFile(r.podDir(podA), contract.FileExclusive, "8")
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.Equal(t, "4-7", r.node.File(r.podDir(podA), contract.FileExclusive))
	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-7")
	r.connect()
	require.Equal(t, "8", r.node.File(r.podDir(podA), contract.FileExclusive))
}

// A partition's cgroup gives its CPUs up before the cgroups above it: some kernels lose
// CPUs that a cgroup above a partition no longer names.
func TestPartitionEndsFromBelow(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.Unprepare(podA, claimA, "4-7")
	var written []string
	want := []string{c.dir, r.podDir(podA), "kubepods/burstable", "kubepods"}
	for _, dir := range want {
		r.node.Intercept(dir, contract.FileExclusive, func(write bool, do func() error) error {
			if write {
				written = append(written, dir)
			}
			return do()
		})
	}
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, want, written)
	require.Equal(t, "0-15", r.cpus(c))
}

// What the cgroups above a new partition name must be known: the partition would be none
// without its CPUs there (I5).
func TestCreationReadsWhatIsNamedAbove(t *testing.T) {
	for _, dir := range []string{"kubepods", "kubepods/burstable", "kubepods/burstable/pod" + podA} {
		t.Run(dir, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
			r.run("other", podB)
			written := false
			back := r.node.Intercept(dir, contract.FileExclusive, func(write bool, do func() error) error {
				if written && !write {
					return syscall.EIO
				}
				written = written || write
				return do()
			})
			_, err := r.create("c", podA, env...)
			require.ErrorContains(t, err, "input/output error")
			require.True(t, written)
			back()
			r.run("c", podA, env...)
		})
	}
}

// A container that ends while its lost partition is looked at has no lost partition.
func TestLostPartitionThatEndsMeanwhile(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	back := r.node.FailWrites("kubepods", contract.FileExclusive, syscall.EIO)
	require.Error(t, r.plugin.Apply(t.Context()))
	require.Len(t, r.announced.InvalidPartitions, 1)
	back()
	r.node.Intercept(c.dir, "cpuset.cpus", func(_ bool, do func() error) error {
		if r.node.Exists(c.dir) {
			r.node.RemoveCgroup(c.dir)
		}
		return do()
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.InvalidPartitions)
	require.Zero(t, r.metric("cpumem_actuator_invalid_partitions"))
}

// A partition that cannot be ended is tried once at each call: each write of the file has
// the kernel look at all partitions.
func TestPartitionThatDoesNotEndIsTriedOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.Unprepare(podA, claimA, "4-7")
	writes := 0
	r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
		if write {
			writes++
			return syscall.EIO
		}
		return do()
	})
	require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
	require.Equal(t, 1, writes)
}

// A kernel without partitions is asked once: the answer does not change while it runs.
func TestKernelWithoutPartitionsIsAskedOnce(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux61)
	asked := 0
	r.node.Intercept("kubepods/dra.cpumem.probe", "", func(_ bool, do func() error) error {
		asked++
		return do()
	})
	r.run("pooled", podB)
	require.NotContains(t, r.announces().Features, contract.FeaturePartition)
	require.Positive(t, asked)
	before := asked
	require.NotContains(t, r.announces().Features, contract.FeaturePartition)
	_, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	require.Equal(t, before, asked)
}

// A decision that is withdrawn takes the report of its lost partition along: when the claim
// comes back, its partition is made at once.
func TestLostPartitionOfAWithdrawnDecision(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	decision := partitioned("4-7", contract.PartitionRoot)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, decision)...)
	lost := r.loseAbove(c, "kubepods")
	back := r.node.FailWrites("kubepods", contract.FileExclusive, syscall.EIO)
	require.Error(t, r.plugin.Apply(t.Context()))
	require.Contains(t, r.announced.InvalidPartitions[claimA], lost)
	back()
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.InvalidPartitions)
	r.node.Prepare(podA, claimA, decision)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
	require.Empty(t, r.announced.InvalidPartitions)
}

// The guard holds a created container back until it is a partition: each look tries again,
// without a pause.
func TestPartitionOfACreatedContainerIsTriedAtEachLook(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	back := r.node.FailWrites(c.dir, contract.FilePartition, syscall.EIO)
	r.connect()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	back()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
}

// A refused partition that cannot be made a member is reported with the failed write: some
// kernels give its CPUs to no other cgroup while it stays.
func TestRefusedPartitionThatStays(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	refused := false
	r.node.Intercept(c.dir, contract.FilePartition, func(write bool, do func() error) error {
		if write && refused {
			return syscall.EIO
		}
		err := do()
		if write && r.node.File(c.dir, contract.FilePartition) == contract.PartitionRoot {
			refused = true
			r.loseAbove(c, "kubepods") // another program is quicker
		}
		return err
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.True(t, refused)
	require.Contains(t, r.announced.InvalidPartitions[claimA], "input/output error")
}

// The node's first partition may have CPUs on which another container of its pod runs: that container moves first (I1).
func TestFirstPartitionTakesCPUsFromItsPod(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pooled := r.run("pooled", podA)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	_, err := r.create("c", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "0-3,8-15", r.cpus(pooled))
}

// If the runtime reports no end of a container with a partition, one Apply takes its CPUs from the cgroups above.
func TestPartitionThatIsGoneWithoutACall(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	for range 2 {
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
	r.node.RemoveCgroup(c.dir)
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// A container without a claim that another program made a partition of claimed CPUs is no partition when the claim's
// container is created (I1).
func TestPooledPartitionEndsAtACreation(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pooled := r.run("pooled", podB)
	env := r.node.Prepare(podA, claimA, quad())
	for range 2 {
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
	for _, dir := range []string{"kubepods", "kubepods/burstable", r.podDir(podB), pooled.dir} {
		r.node.SetFile(dir, contract.FileExclusive, "4-5")
	}
	r.node.SetFile(pooled.dir, contract.FilePartition, contract.PartitionRoot)
	_, err := r.create("claimed", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "member", r.node.File(pooled.dir, contract.FilePartition))
}
