// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// loseAbove has another program take the CPUs from a cgroup above a partition. On Linux
// 7 the partition is invalid then, and has lost nothing. loseAbove returns the content of
// the partition file.
func (r *runtime) loseAbove(c *container, dir string) string {
	r.node.SetFile(dir, contract.FileExclusive, "")
	lost := r.node.File(c.dir, contract.FilePartition)
	require.Contains(r.t, lost, "root invalid (")
	return lost
}

// A partition that cannot be made again is announced and left alone: if it
// ended while an ancestor lacks its CPUs, it would lose them.
func TestPartitionLost(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	lost := r.loseAbove(c, "kubepods")
	back := r.node.RemoveFile("kubepods", contract.FileExclusive)
	for range 2 {
		r.later(time.Hour)
		require.Error(t, r.plugin.Apply(t.Context()))
		require.Equal(t, lost, r.node.File(c.dir, contract.FilePartition))
		require.Len(t, r.announced.InvalidPartitions, 1)
		require.Contains(t, r.announced.InvalidPartitions[claimA], lost)
		require.Equal(t, 1.0, r.metric("cpumem_actuator_invalid_partitions"))
	}
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, lost, r.node.File(c.dir, contract.FilePartition), "tried once in a refresh interval")
	r.later(r.plugin.RefreshInterval/2 - 1)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, lost, r.node.File(c.dir, contract.FilePartition), "a refresh may come early, not by half")
	r.later(1)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.Empty(t, r.announced.InvalidPartitions)
	require.Zero(t, r.metric("cpumem_actuator_invalid_partitions"))
}

// No partition is made, and a lost one does not end, while a cgroup above does not name
// its CPUs, whatever was written there: the kernel would lose them.
func TestPartitionBelowACgroupWithoutItsCPUs(t *testing.T) {
	for name, dir := range map[string]string{
		"kubepods": "kubepods", "the level": "kubepods/burstable", "the pod": "kubepods/burstable/pod" + podA,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
			c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
			lost := r.loseAbove(c, dir)
			r.node.Intercept(dir, contract.FileExclusive, func(write bool, do func() error) error {
				err := do()
				if write {
					r.node.SetFile(dir, contract.FileExclusive, "") // another program overwrites it at once
				}
				return err
			})
			_ = r.plugin.Apply(t.Context())
			require.Equal(t, lost, r.node.File(c.dir, contract.FilePartition))
			require.Contains(t, r.announced.InvalidPartitions[claimA],
				"cgroup "+dir+` has "" in cpuset.cpus.exclusive, the container's partition needs 4-7`)
		})
	}
}

// A lost partition hides no other error of its container.
func TestLostPartitionHidesNoError(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	r.loseAbove(c, "kubepods")
	back := r.node.RemoveFile("kubepods", contract.FileExclusive)
	require.Error(t, r.plugin.Apply(t.Context()))
	back()
	r.node.RemoveFile(c.dir, "cpuset.mems")
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "cpuset.mems")
}

// Another error does not hide a lost partition: the error may be the reason.
func TestErrorHidesNoLostPartition(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	env := r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))
	c := r.run("c", podA, env...)
	lost := r.loseAbove(c, "kubepods")
	r.node.RemoveFile("kubepods", contract.FileExclusive)
	r.node.RemoveFile(c.dir, "cpuset.mems")
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "cpuset.mems")
	require.Contains(t, r.announced.InvalidPartitions[claimA], lost)
	require.Equal(t, 1.0, r.metric("cpumem_actuator_invalid_partitions"))
}

// CPUs that Linux 6.12 has lost come back at a reboot only. The claim's partition is
// announced as lost, and all other claims go on.
func TestLostCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.node.MayLoseCPUs = true
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.SetFile("kubepods", contract.FileExclusive, "")
	r.node.SetFile(c.dir, contract.FilePartition, "member")
	require.Equal(t, "0-3,8-15", r.node.File("", "cpuset.cpus.effective"))
	for range 2 {
		r.later(time.Hour)
		require.NoError(t, r.plugin.Apply(t.Context()))
		require.Contains(t, r.announced.InvalidPartitions[claimA], "Invalid cpu list in cpuset.cpus.exclusive")
		require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
	}
	other := r.run("other", podB, r.node.Prepare(podB, claimB, partitioned("8-9", contract.PartitionRoot))...)
	require.Equal(t, "root", r.node.File(other.dir, contract.FilePartition))
	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.InvalidPartitions)
	require.Equal(t, []string{"8-9", "8-9", ""}, r.exclusive(podA))
}
