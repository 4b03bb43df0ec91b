// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// What a call costs in operations on cgroups, beside containers without a claim: none for a
// container without a claim, and a bounded number for each container that must be looked at.
func TestOperationsOfCalls(t *testing.T) {
	const many = 100
	partition := contract.Decision{
		CPUs: contracttest.CPUs("4-7"), Partition: contract.PartitionRoot, Requires: []string{contract.FeaturePartition},
	}
	pool := contract.Decision{CPUs: contracttest.CPUs("4-7")}
	for name, c := range map[string]struct {
		decision *contract.Decision
		apply    bool
		// each is the largest number of operations for one more container.
		each float64
	}{
		"created without a claim":    {each: 0},
		"created with a partition":   {decision: &partition, each: 2},
		"created with a pool's CPUs": {decision: &pool, each: 1},
		"everything, nothing to do":  {apply: true, each: 3},
	} {
		t.Run(name, func(t *testing.T) {
			operations := func(containers int) float64 {
				r, counts := countedRuntime(t)
				for i := range containers {
					r.run(fmt.Sprintf("c%03d", i), testnode.UID(1000+i/5))
				}
				var env []string
				if c.decision != nil {
					env = r.node.Prepare(podA, claimA, *c.decision)
				}
				require.NoError(t, r.plugin.Apply(t.Context()))
				created, err := r.create("new", podA, env...)
				require.NoError(t, err)
				for _, pool := range []string{"8-15", "0-3"} { // the first opens the files that stay open
					if !c.apply {
						r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs(pool) })
						require.NoError(t, r.plugin.Apply(t.Context()))
					}
					counts.Operations.Store(0)
					if c.apply {
						require.NoError(t, r.plugin.Apply(t.Context()))
					} else {
						_, _, err = r.session.CreateContainer(t.Context(), created.pod, created.api)
						require.NoError(t, err)
					}
				}
				return float64(counts.Operations.Load())
			}
			few, all := operations(0), operations(many)
			t.Logf("%.0f operations alone, %.0f beside %d containers", few, all, many)
			require.LessOrEqual(t, (all-few)/many, c.each)
		})
	}
}

// countedRuntime returns a runtime and the number of its actuator's operations on cgroups.
func countedRuntime(t *testing.T) (*runtime, *testnode.Counts) {
	t.Helper()
	counts := new(testnode.Counts)
	r := newRuntime(t, t.TempDir())
	r.mount = cgroups.NewMount(counts.Of(r.node.Hierarchy()))
	r.connect()
	return r, counts
}

// A comparison of everything opens the cgroups of pods and levels, and no cgroup of a container, because the files of containers
// stay open.
func TestFilesStayOpen(t *testing.T) {
	opened := func(containers int) int64 {
		r, counts := countedRuntime(t)
		for i := range containers {
			env := r.node.Prepare(podA, testnode.UID(5000+i), contract.Decision{
				CPUs: contracttest.CPUs(fmt.Sprint(4 + i)), Memory: &contract.Memory{Max: 1 << 30},
			})
			r.run(fmt.Sprintf("claimed%d", i), podA, env...)
			r.run(fmt.Sprintf("pool%d", i), podA)
		}
		for range 2 { // the first reads marks, the second opens the files
			require.NoError(t, r.plugin.Apply(t.Context()))
		}
		counts.Cgroups.Store(0)
		require.NoError(t, r.plugin.Apply(t.Context()))
		return counts.Cgroups.Load()
	}
	require.Positive(t, opened(1))
	require.Equal(t, opened(1), opened(4))
}

// Of containers that are gone no file stays open.
func TestFilesOfGoneContainers(t *testing.T) {
	r, counts := countedRuntime(t)
	c := r.run("c", podA)
	for range 2 {
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
	require.Positive(t, counts.Files.Load())
	require.NoError(t, r.remove(c))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Zero(t, counts.Files.Load())
}

// A container without a claim costs the runtime few allocations.
func TestAllocationsOfCalls(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("plain", podA)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		_, _, err := r.session.CreateContainer(t.Context(), c.pod, c.api)
		require.NoError(t, err)
	}), 80.0)
}

// A runtime that writes the present pool in an update is no other program: neither its write
// nor the next change of the pool is a repair, although marks are not read each time.
func TestUpdateAfterThePoolMoved(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("plain", podA)
	pool := func(cpus string) {
		r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs(cpus) })
	}
	for range 2 { // the second finds the marks of the first
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
	pool("0-7")
	require.NoError(t, r.update(c))
	for range 2 {
		require.NoError(t, r.plugin.Apply(t.Context()))
	}
	pool("0-3")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3", r.cpus(c))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
}

// The runtime's update may write the new pool before this actuator does. A creation then marks the pool as written: what the
// runtime writes later is a repair.
func TestCreationAfterAnUpdate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pooled := r.run("pooled", podA)
	require.NoError(t, r.plugin.Apply(t.Context()))
	env := r.node.Prepare(podB, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	r.node.SetFile(pooled.dir, "cpuset.cpus", "0-3,8-15")
	_, err := r.create("claimed", podB, env...)
	require.NoError(t, err)
	r.node.SetFile(pooled.dir, "cpuset.cpus", "0-15")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(pooled))
	require.Equal(t, 1.0, r.metric("cpumem_actuator_repaired_total"))
}

// A write that failed is made again, and is no repair of what another program wrote.
func TestFailedWriteIsNoRepair(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA)
	require.NoError(t, r.plugin.Apply(t.Context()))
	back := r.node.FailWrites(c.dir, "cpuset.cpus", syscall.EIO)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-7") })
	require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-7", r.cpus(c))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
}
