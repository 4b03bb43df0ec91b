// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// away makes a container that the runtime created while no actuator was there,
// with an actuator that cannot move a pool container off the claim's CPUs.
func away(t *testing.T) (r *runtime, c, pool *container) {
	r = newRuntime(t, t.TempDir())
	pool = r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, quad())
	r.addPod(podA)
	pod := sandbox(podA)
	c = &container{
		pod: pod, dir: r.podDir(podA) + "/c", spec: map[string]string{},
		api: &api.Container{
			Id: "c", PodSandboxId: pod.Id, Name: "c", Env: env, State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"},
		},
	}
	r.containers["c"] = c
	r.node.AddCgroup(c.dir)
	r.node.RemoveFile(pool.dir, "cpuset.cpus")
	r.connect()
	require.Equal(t, "0-15", r.cpus(c))
	return r, c, pool
}

// TestNoCallOvertakesThePool checks I1: neither an update nor a start gives a
// container its CPUs while a pool container is on them.
func TestNoCallOvertakesThePool(t *testing.T) {
	for name, call := range map[string]func(*runtime, *container) error{
		"update": func(r *runtime, c *container) error { return r.update(c) },
		"start": func(r *runtime, c *container) error {
			return r.session.StartContainer(t.Context(), c.pod, c.api)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, c, pool := away(t)
			require.ErrorContains(t, call(r, c), "could not be moved off claimed CPUs")
			require.Equal(t, "0-15", r.cpus(c))
			require.NotContains(t, c.spec, "cpuset.cpus")

			r.node.SetFile(pool.dir, "cpuset.cpus", "0-15")
			require.NoError(t, call(r, c))
			require.Equal(t, "0-3,8-15", r.cpus(pool))
		})
	}
}

// TestStoppedContainerThatLives checks I1: a container that the runtime lists as
// stopped counts until its cgroup is gone.
func TestStoppedContainerThatLives(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	p := r.run("p", podB)
	_, err := r.session.StopContainer(t.Context(), p.pod, p.api)
	require.NoError(t, err)
	p.api.State = api.ContainerState_CONTAINER_STOPPED
	r.connect()
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.Equal(t, "4-7", r.cpus(c))
	require.Equal(t, "0-3,8-15", r.cpus(p))

	r.node.RemoveCgroup(p.dir)
	require.NoError(t, r.plugin.Apply(t.Context()))
}

// TestPartitionThatDoesNotEnd checks that the cgroups above a partition keep its
// CPUs while it cannot be ended: some kernels lose the CPUs otherwise.
func TestPartitionThatDoesNotEnd(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	file := filepath.Join(r.node.Cgroup, c.dir, contract.FilePartition)
	require.NoError(t, os.Rename(file, file+".away"))
	require.NoError(t, os.Mkdir(file, 0o755))
	require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
	r.node.Unprepare(podA, claimA, "4-7")
	_ = r.plugin.Apply(t.Context())
	require.Equal(t, "4-7", r.node.File(filepath.Dir(c.dir), contract.FileExclusive))

	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Rename(file+".away", file))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.Empty(t, r.node.File(filepath.Dir(c.dir), contract.FileExclusive))
}

// TestNodeFileLostBesideAnUnreadableClaim checks I1: the last known pool stands
// in for the node file also while nothing shows which CPUs a claim has.
func TestNodeFileLostBesideAnUnreadableClaim(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	r.connect()
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	p := r.run("p", podB)
	require.Equal(t, "4-7", r.cpus(c))
	require.Equal(t, "0-3,8-15", r.cpus(p))
}

// TestLateRemoveWithoutACgroup checks that a container without a cgroup of its own
// is forgotten when the runtime removes it, although the call could not get the
// lock: it would refuse all claims.
func TestLateRemoveWithoutACgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	vm, err := r.create("vm", podB)
	require.NoError(t, err)
	vm.api.Linux.CgroupsPath = ""
	r.connect()
	pool := r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, quad())
	r.addPod(podA)
	free := r.block(pool.dir, "cpuset.cpus")
	pod := sandbox(podA)
	_, _, err = r.session.CreateContainer(soon(t), pod, &api.Container{
		Id: "late", PodSandboxId: pod.Id, Name: "late", Env: env,
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/late"},
	})
	require.ErrorContains(t, err, "busy")
	require.NoError(t, r.session.RemoveContainer(soon(t), vm.pod, vm.api))
	free()
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	r.run("claimed", podA, env...)
}
