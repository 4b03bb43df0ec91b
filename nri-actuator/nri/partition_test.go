// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

func partitioned(cpus, kind string) contract.Decision {
	return contract.Decision{CPUs: contracttest.CPUs(cpus), Partition: kind, Requires: []string{contract.FeaturePartition}}
}

// exclusive returns the partition CPUs of kubepods, the QoS level and the pod.
func (r *runtime) exclusive(pod string) []string {
	var all []string
	for _, dir := range []string{"kubepods", "kubepods/burstable", r.podDir(pod)} {
		all = append(all, r.node.File(dir, contract.FileExclusive))
	}
	return all
}

// The runtime makes the container a partition, below ancestors that have its
// CPUs by then. Other containers keep their cpuset, except the containers of
// the same pod. A partition that another program has ended is made again.
func TestPartition(t *testing.T) {
	for _, release := range []kerneltest.Release{kerneltest.Linux612, kerneltest.Linux7} {
		t.Run(release.Name, func(t *testing.T) { testPartition(t, release) })
	}
}

func testPartition(t *testing.T, release kerneltest.Release) {
	r := newRuntimeOn(t, t.TempDir(), release)
	kind, another := contract.PartitionRoot, contract.PartitionIsolated
	features := []string{
		contract.FeatureOOMScore, contract.FeatureMemoryPolicy, contract.FeatureWeightedInterleave, contract.FeaturePartition,
		contract.FeatureQuota,
	}
	if release.Name == kerneltest.Linux7.Name {
		kind, another = another, kind
		features = slices.Insert(features, 4, contract.FeatureIsolated)
	}
	pooled := r.run("pooled", podB)
	r.later(time.Hour)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", kind))
	beside := r.run("beside", podA)
	c := r.run("c", podA, env...)
	require.Equal(t, features, r.announces().Features)

	holds := func() {
		t.Helper()
		require.Equal(t, kind, r.node.File(c.dir, contract.FilePartition))
		require.Equal(t, "4-7", r.cpus(c))
		require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
		require.Equal(t, "0-15", r.cpus(pooled))
		require.Equal(t, "0-3,8-15", r.node.File(pooled.dir, "cpuset.cpus.effective"), "the kernel takes them from it")
		require.Equal(t, "0-3,8-15", r.cpus(beside), "in the same pod it would end the partition")
		require.Zero(t, r.metric("cpumem_actuator_invalid_partitions"))
	}
	holds()
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"), "the runtime made it")
	require.NoError(t, r.update(c))
	holds()
	r.connect()
	holds()

	for name, by := range map[string]struct {
		dir, file, content string
		// invalid is the kernel on which the partition is invalid then.
		invalid kerneltest.Release
	}{
		"ended":            {dir: c.dir, file: contract.FilePartition, content: "member"},
		"of another kind":  {dir: c.dir, file: contract.FilePartition, content: another},
		"without its CPUs": {dir: c.dir, file: contract.FileExclusive, invalid: kerneltest.Linux612},
		"without its pod":  {dir: r.podDir(podA), file: contract.FileExclusive, invalid: kerneltest.Linux7},
		"without ancestor": {dir: "kubepods", file: contract.FileExclusive, invalid: kerneltest.Linux7},
		"crowded":          {dir: beside.dir, file: "cpuset.cpus", content: "0-15", invalid: kerneltest.Linux612},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.metric("cpumem_actuator_repaired_total")
			r.node.SetFile(by.dir, by.file, by.content)
			repairs := 1.0
			if by.invalid.Name == release.Name {
				require.Contains(t, r.node.File(c.dir, contract.FilePartition), kind+" invalid")
				repairs++ // the partition, beside the file
			}
			require.NoError(t, r.plugin.Apply(t.Context()))
			holds()
			require.Equal(t, before+repairs, r.metric("cpumem_actuator_repaired_total"))
		})
	}

	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA), "I3")
	require.Equal(t, "0-15", r.cpus(beside))
}

// announces returns the announcement after the next Apply.
func (r *runtime) announces() contract.Announcement {
	_ = r.plugin.Apply(r.t.(*testing.T).Context())
	return r.announced
}

// If the runtime does not know the partition files, the actuator makes the
// partition at the start.
func TestPartitionByTheActuator(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c, err := r.create("c", podA, env...)
	require.NoError(t, err)
	delete(c.spec, contract.FilePartition)
	delete(c.spec, contract.FileExclusive)
	require.NoError(t, r.start(c))
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, "4-7", r.node.File(c.dir, contract.FileExclusive))
}

// A partition that cannot be made fails the start (I5).
func TestPartitionThatIsNone(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c, err := r.create("c", podA, env...)
	require.NoError(t, err)
	delete(c.spec, contract.FilePartition)
	r.node.AddCgroup(c.dir)
	r.node.RemoveFile(c.dir, contract.FilePartition)
	err = r.session.StartContainer(t.Context(), c.pod, c.api)
	require.ErrorContains(t, err, contract.FilePartition)
}

// A container that lost its claim gives its partition CPUs back: another claim
// may have them.
func TestPartitionOfALostClaim(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.Empty(t, r.node.File(c.dir, contract.FileExclusive))
	require.Equal(t, "0-15", r.cpus(c))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// An older frontend names no partitions. It keeps the CPUs out of the pool, and
// running partitions keep theirs.
func TestPartitionsOutliveARollback(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.CPUs, s.PartitionCPUs = contracttest.CPUs("0-3,8-15"), nil
		pod := s.Pods[podA]
		pod.PartitionCPUs = contract.CPUSet{}
		s.Pods[podA] = pod
	})
	for range 2 {
		require.NoError(t, r.plugin.Apply(t.Context()))
		require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
		r.connect()
	}
	require.NoError(t, r.remove(c))
	c = r.run("again", podA, env...)
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.NoError(t, r.remove(c))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// A node that cannot make partitions announces it, and refuses decisions that
// need one.
func TestNoPartitions(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux61)
	r.run("pooled", podB)
	require.NotContains(t, r.announces().Features, contract.FeaturePartition)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err, `requires "partition", which this node cannot do any more`)
}

// A container without a cgroup here, as in a virtual machine, has no partition.
// Its start fails, because its CPUs are not kept from other containers (I5).
func TestPartitionWithoutACgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	require.ErrorContains(t, r.session.StartContainer(t.Context(), c.pod, c.api), "does not exist")
}

// After a failed write no value is kept as another program's and given back
// later: no cgroup could have these CPUs again (I3).
func TestExclusiveThatCouldNotBeWritten(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	env := r.node.Prepare(podB, claimB, partitioned("8-9", contract.PartitionRoot))
	back := r.node.Fail("kubepods/burstable", contract.FileExclusive, syscall.EIO)
	_, err := r.create("d", podB, env...)
	require.ErrorContains(t, err, contract.FileExclusive)
	back()
	d := r.run("d", podB, env...)
	require.Equal(t, []string{"4-9", "4-9", "8-9"}, r.exclusive(podB))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"), "nobody else wrote")

	require.NoError(t, r.remove(c))
	require.NoError(t, r.remove(d))
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.Unprepare(podB, claimB, "8-9")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA), "I3")
	require.Equal(t, []string{"", "", ""}, r.exclusive(podB), "I3")
}

// CPUs that are given back at a creation, before the node state is applied, do
// not count as another program's write.
func TestExclusiveGivenBackAtACreation(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB)
	require.NoError(t, r.remove(r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)))
	r.node.Unprepare(podA, claimA, "4-7")
	r.run("pooled", podC, r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("0-1")})...)
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
	fourth := testnode.UID(4)
	r.run("d", fourth, r.node.Prepare(fourth, claimA, partitioned("8-9", contract.PartitionRoot))...)
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
}

// Kubelet's cgroupRoot may put kubepods below cgroups that this driver does not
// write.
func TestNoPartitionsBelowACgroupRoot(t *testing.T) {
	for root, able := range map[string]bool{"": true, "/outer": false} {
		r := newRuntime(t, t.TempDir())
		r.node.AddCgroup("outer/kubepods/burstable/pod" + podA)
		r.addPod(podA)
		pod := sandbox(podA)
		pod.Linux.CgroupParent = root + pod.Linux.CgroupParent
		_, err := r.session.Synchronize(t.Context(), []*api.PodSandbox{pod}, []*api.Container{{
			Id: "c", PodSandboxId: pod.Id, State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"},
		}})
		require.NoError(t, err)
		require.Equal(t, able, slices.Contains(r.announced.Features, contract.FeaturePartition), root)
	}
}

// A sandbox that was found without a runtime has CPUs of its own since. It gives them up for its pod's partition, also
// when the runtime is back, which does not list sandboxes.
func TestPartitionBesideAnAdoptedSandbox(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	r.addPod(podA)
	sandbox := r.podDir(podA) + "/sandbox"
	r.node.AddCgroup(sandbox)
	r.plugin.Disconnected(t.Context(), "gone")
	require.NoError(t, r.plugin.Refresh(t.Context()))
	require.Equal(t, "0-15", r.node.File(sandbox, "cpuset.cpus"))
	r.reconnect()
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.node.File(sandbox, "cpuset.cpus"))
	r.node.RemoveCgroup(sandbox)
	require.NoError(t, r.plugin.Apply(t.Context()))
}

// The runtime makes the cgroup before it writes the partition. A partition that the actuator makes in between is no repair.
func TestPartitionMadeBeforeTheRuntimeMakesIt(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
	r.node.SetFile(c.dir, contract.FilePartition, "member")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.EqualValues(t, 1, r.metric("cpumem_actuator_repaired_total", contract.FilePartition))
}

// A pool container may have CPUs of its pod's partition while the frontend does not list the pod. It gives them up before the
// runtime makes the partition.
func TestPartitionTakesFromItsPod(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	beside, elsewhere := r.run("beside", podA), r.run("elsewhere", podB)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, "0-3,8-15", r.cpus(beside))
	require.Equal(t, "0-15", r.cpus(elsewhere))
}

// A node may start an older kernel than the one for which a claim was prepared. There the kernel may hang for good if the
// actuator makes an isolated partition, so the actuator only reports the loss of one.
func TestIsolatedPartitionOnAnOlderKernel(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	d := partitioned("4-7", contract.PartitionIsolated)
	d.Requires = append(d.Requires, contract.FeatureIsolated)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, d)...)
	r.kernel = "6.12.0"
	r.connect()
	r.node.SetFile(c.dir, contract.FilePartition, "member")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.Contains(t, r.announces().InvalidPartitions[claimA], "the kernel is Linux 6.12.0")
}

// A claim may have an isolated partition and not require the feature: the runtime would make the partition.
func TestIsolatedPartitionIsNotCreatedOnAnOlderKernel(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionIsolated))
	r.kernel = "6.12.0"
	r.connect()
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err, "isolated partition, which this node cannot make: ")
	require.ErrorContains(t, err, "the kernel is Linux 6.12.0")
}

// The answer to an update does not make an isolated partition on an older kernel: neither of a container whose
// partition was lost, nor of one that was created without an answer.
func TestUpdateOnAnOlderKernel(t *testing.T) {
	d := partitioned("4-7", contract.PartitionIsolated)
	d.Requires = append(d.Requires, contract.FeatureIsolated)
	for name, prepare := range map[string]func(r *runtime, env []string) *container{
		"lost": func(r *runtime, env []string) *container {
			c := r.run("c", podA, env...)
			r.node.SetFile(c.dir, contract.FilePartition, "member")
			return c
		},
		"waiting": func(r *runtime, env []string) *container { return r.waiting("c", podA, env...) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
			c := prepare(r, r.node.Prepare(podA, claimA, d))
			r.kernel = "6.12.0"
			r.connect()
			c.spec = make(map[string]string)
			_ = r.update(c)
			require.NotContains(t, c.spec, contract.FilePartition)
			require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
		})
	}
}
