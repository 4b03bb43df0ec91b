// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// A58: a container that another program pinned to unmanaged CPUs stays there,
// in every call. A container that is also on this driver's CPUs does not.
func TestContainersOfOthers(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.CPUs, s.Shared.UnmanagedCPUs = contracttest.CPUs("0-7"), contracttest.CPUs("8-15")
	})

	pinned := func(id, cpus string) *container {
		c := r.pinned(id, podB, cpus)
		require.NoError(t, r.start(c))
		return c
	}
	theirs, across, odd := pinned("theirs", "8-9"), pinned("across", "7-8"), pinned("odd", "9,x")
	mine := r.run("mine", podB)
	check := func() {
		t.Helper()
		require.Equal(t, "8-9", r.cpus(theirs))
		for _, c := range []*container{across, odd, mine} {
			require.Equal(t, "0-7", r.cpus(c), c.api.Id)
		}
	}
	check()
	require.NoError(t, r.update(theirs))
	check()

	// Another program moves the container off its CPUs, seen by the actuator or
	// not.
	for _, id := range []string{"asked", "written"} {
		c := pinned(id, "8-9")
		if id == "asked" {
			updates, err := r.session.UpdateContainer(t.Context(), c.pod, c.api, &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-15"}})
			require.NoError(t, err)
			require.Equal(t, "0-7", updates[0].GetLinux().GetResources().GetCpu().GetCpus())
		}
		r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
		require.NoError(t, r.plugin.Apply(t.Context()))
		require.Equal(t, "0-7", r.cpus(c), id)
		require.NoError(t, r.remove(c))
	}
	r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "8-9", r.cpus(theirs))
	require.Equal(t, "0-3", r.cpus(mine))
	r.node.Unprepare(podA, claimA, "4-7")
	r.connect()
	check()

	// The configuration changes. A cpuset that this driver wrote does not pin a
	// container.
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.CPUs, s.Shared.UnmanagedCPUs = contracttest.CPUs("8-15"), contracttest.CPUs("0-7")
	})
	r.connect()
	require.Equal(t, "8-15", r.cpus(mine))
}

// pinned creates a container with a cpuset in its spec.
func (r *runtime) pinned(id, podUID, cpus string) *container {
	pod := sandbox(podUID)
	c := &container{pod: pod, dir: r.podDir(podUID) + "/" + id, spec: map[string]string{"cpuset.cpus": cpus},
		api: &api.Container{Id: id, PodSandboxId: pod.Id, Name: id, State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/" + id,
				Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: cpus}}}}}
	r.node.AddCgroup(r.podDir(podUID))
	a, _, err := r.session.CreateContainer(context.Background(), pod, c.api)
	require.NoError(r.t, err)
	c.api.Annotations = a.GetAnnotations()
	r.take(c, a.GetLinux().GetResources())
	r.containers[id] = c
	return c
}

// Another program that writes what this driver is about to write is no drift.
func TestWantedContentOfAnother(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podB)
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	r.node.SetFile(c.dir, "cpuset.cpus", "0-3")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
	r.node.SetFile(c.dir, "cpuset.cpus", "0-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, 1.0, r.metric("cpumem_actuator_repaired_total"))
}

// A value that another program wrote into a pod stays when the pod's claim is released.
// The actuator removes its mark of the former value.
func TestValueOfAnotherStays(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, quad())
	r.wantInPod(podA, contract.Files{"memory.min": "8192"})
	c := r.run("c", podA, env...)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-7")
	r.node.SetFile(r.podDir(podA), "memory.min", "4096")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4096", r.node.File(r.podDir(podA), "memory.min"))
	state, err := r.node.Mount().Observe(r.podDir(podA))
	require.NoError(t, err)
	require.Empty(t, state.Former)
}

// What another program wrote into a container is repaired, and not announced: the
// frontend looks at pods and levels.
func TestDriftOfAContainerIsNotAnnounced(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.SetFile(c.dir, "cpuset.cpus", "0")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, 1.0, r.metric("cpumem_actuator_repaired_total"))
	require.Empty(t, r.announced.Overwritten)
}

// A repair that fails is none: it is counted when the file has its value again.
func TestFailedRepairIsNotCounted(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA)
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.SetFile(c.dir, "cpuset.cpus", "0")
	back := r.node.FailWrites(c.dir, "cpuset.cpus", syscall.EIO)
	require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, 1.0, r.metric("cpumem_actuator_repaired_total"))
}

// A mark that cannot be removed is an error: while it stays, what another program writes may
// be taken for this driver's, and an old value may be given back (I4).
func TestMarkThatCannotBeRemoved(t *testing.T) {
	for name, content := range map[string]string{"another program wrote": "16384", "another program gave it back": "0"} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			r.run("c", podA)
			r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
			require.NoError(t, r.plugin.Apply(t.Context()))
			r.node.Change(func(s *contract.NodeState) { s.Ancestors = nil })
			r.node.SetFile("kubepods", "memory.min", content)
			back := r.node.FailWrites("kubepods", "", syscall.EIO)
			require.ErrorContains(t, r.plugin.Apply(t.Context()), "remove its mark")
			back()
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, content, r.node.File("kubepods", "memory.min"))
			state, err := r.node.Mount().Observe("kubepods")
			require.NoError(t, err)
			require.Empty(t, state.Former)
			require.Empty(t, state.Written)
		})
	}
}
