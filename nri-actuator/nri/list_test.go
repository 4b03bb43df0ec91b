// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// A container that is found without a runtime is the runtime's as soon as the runtime lists
// it: its claim holds, and nothing of what was found.
func TestFoundContainerIsListed(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("8")})...)
	env := r.node.Prepare(podA, claimA, quad())
	r.plugin.Disconnected(t.Context(), "gone")
	c := r.foreign("c", podA, env...)
	r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
	require.NoError(t, r.plugin.Refresh(t.Context()))
	require.Equal(t, "0-3,9-15", r.cpus(c), "found")
	r.reconnect()
	require.Equal(t, "4-7", r.cpus(c))
	r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
}

// A58: a container that is found without a runtime on unmanaged CPUs stays there: another
// program has pinned it. One that is also on this driver's CPUs does not stay.
func TestFoundContainerOfAnotherProgram(t *testing.T) {
	for found, want := range map[string]string{"8-9": "8-9", "7-8": "0-7"} {
		r := newRuntime(t, t.TempDir())
		r.run("pool", podB)
		r.node.Change(func(s *contract.NodeState) {
			s.Shared.CPUs, s.Shared.UnmanagedCPUs = contracttest.CPUs("0-7"), contracttest.CPUs("8-15")
		})
		r.plugin.Disconnected(t.Context(), "gone")
		c := r.foreign("c", podC)
		r.node.SetFile(c.dir, "cpuset.cpus", found)
		require.NoError(t, r.plugin.Refresh(t.Context()))
		require.Equal(t, want, r.cpus(c), "found on %s", found)
	}
}

// The runtime gives a created container up if it does not list it. The partition that it
// would have become needs no CPUs any more (I3), also if its cgroup lives a while longer.
func TestCreatedContainerThatIsNotListed(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	r.run("beside", podA)
	r.node.AddCgroup(c.dir)
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	delete(r.containers, "c")
	r.reconnect()
	r.node.RemoveCgroup(c.dir)
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// I1: a container that the runtime no longer lists counts while its processes run, also if
// it started without a node state: no call has looked at its cgroup then.
func TestContainerWithoutANodeStateThatIsNotListed(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.connect()
	p := r.run("p", podB)
	delete(r.containers, "p")
	r.reconnect()
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.Equal(t, "4-7", r.cpus(c))
	require.Equal(t, "0-3,8-15", r.cpus(p))
}

// A claim's container is not in the pool: it keeps no other claim from the node if its
// cgroup is not known.
func TestClaimBesideAClaimWithoutAKnownCgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	unknown := r.foreign("unknown", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("8-9")})...)
	unknown.api.Linux.CgroupsPath = "../elsewhere"
	require.NoError(t, r.synchronize())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.Equal(t, "4-7", r.cpus(c))
}

// I3: the partition of a removed container ends as soon as it can, also if the runtime did
// not list the container's pod.
func TestRemovedContainerWithoutAListedPod(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	pod := c.pod
	c.pod = nil
	r.connect()
	c.pod = pod
	back := r.node.FailWrites(c.dir, contract.FilePartition, syscall.EIO)
	require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
	r.node.Unprepare(podA, claimA, "4-7")
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, []string{"", "", ""}, r.exclusive(podA))
}

// A container whose cgroup goes right after its start is forgotten: its start has shown that
// it had one.
func TestContainerThatEndsAfterItsStart(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA)
	e := enforce.New(r.plugin.Options.Options)
	ctr, known := e.FindOrAdd(at(c, true))
	require.False(t, known)
	_, err := e.ApplyTo(t.Context(), ctr, known)
	require.NoError(t, err)
	r.node.RemoveCgroup(c.dir)
	_, err = e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.Nil(t, e.Find("c"))
}
