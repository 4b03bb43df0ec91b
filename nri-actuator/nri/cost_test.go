// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// counting counts the operations on a hierarchy. On a real node each is one to three system
// calls, and they are what a call of the runtime costs.
type counting struct {
	cgroups.Hierarchy
	operations *atomic.Int64
}

func (h counting) Open(dir string) (cgroups.Cgroup, error) {
	h.operations.Add(1)
	c, err := h.Hierarchy.Open(dir)
	if err != nil {
		return nil, err
	}
	return countingCgroup{c, h.operations}, nil
}

type countingCgroup struct {
	cgroups.Cgroup
	operations *atomic.Int64
}

func (c countingCgroup) Children() ([]string, error) {
	c.operations.Add(1)
	return c.Cgroup.Children()
}

func (c countingCgroup) Read(file string) ([]byte, error) {
	c.operations.Add(1)
	return c.Cgroup.Read(file)
}

func (c countingCgroup) OpenFile(file string) (cgroups.File, error) {
	c.operations.Add(1)
	f, err := c.Cgroup.OpenFile(file)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c.operations}, nil
}

type countingFile struct {
	cgroups.File
	operations *atomic.Int64
}

func (f countingFile) Read() ([]byte, error) {
	f.operations.Add(1)
	return f.File.Read()
}

func (c countingCgroup) Write(file, content string) error {
	c.operations.Add(1)
	return c.Cgroup.Write(file, content)
}

func (c countingCgroup) Attributes() ([]string, error) {
	c.operations.Add(1)
	return c.Cgroup.Attributes()
}

func (c countingCgroup) Attribute(name string) (string, error) {
	c.operations.Add(1)
	return c.Cgroup.Attribute(name)
}

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
				var count atomic.Int64
				r := newRuntime(t, t.TempDir())
				r.mount = cgroups.NewMount(counting{r.node.Hierarchy(), &count})
				r.connect()
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
				for range 2 { // the first opens the files that stay open
					count.Store(0)
					if c.apply {
						require.NoError(t, r.plugin.Apply(t.Context()))
					} else {
						_, _, err = r.session.CreateContainer(t.Context(), created.pod, created.api)
						require.NoError(t, err)
					}
				}
				return float64(count.Load())
			}
			few, all := operations(0), operations(many)
			t.Logf("%.0f operations alone, %.0f beside %d containers", few, all, many)
			require.LessOrEqual(t, (all-few)/many, c.each)
		})
	}
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
