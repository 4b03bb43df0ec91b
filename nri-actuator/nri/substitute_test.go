// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
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

// I1: the CPUs of a lost partition go offline as well. The partition is not made again
// before one is back.
func TestNoUsableCPUOfALostPartition(t *testing.T) {
	r := newRuntimeOn(t, t.TempDir(), kerneltest.Linux7)
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-5", contract.PartitionRoot))...)
	r.loseAbove(c, "kubepods")
	back := r.node.RemoveFile("kubepods", contract.FileExclusive)
	require.Error(t, r.plugin.Apply(t.Context()))
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.SetOnline(false, 4, 5)
	pool := r.node.State.SharedOf(podA).CPUs
	require.Equal(t, contracttest.CPUs("0-3,6-15"), pool)
	for range 2 {
		r.later(r.plugin.RefreshInterval)
		require.NoError(t, r.plugin.Apply(t.Context()))
		require.Equal(t, pool.String(), r.cpus(c))
		require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
		require.Empty(t, r.node.File(c.dir, contract.FileExclusive))
		require.Contains(t, r.announced.InvalidPartitions, claimA)
	}
	r.node.SetOnline(true, 4, 5)
	r.later(r.plugin.RefreshInterval)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-5", r.cpus(c))
	require.Equal(t, "root", r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, "4-5", r.node.File(c.dir, "cpuset.cpus.effective"))
	require.Empty(t, r.announced.InvalidPartitions)
}
