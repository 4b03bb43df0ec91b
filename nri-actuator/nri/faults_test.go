// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// away makes a container that the runtime created while no actuator was there,
// with an actuator that cannot move a pool container off the claim's CPUs until back is
// called.
func away(t *testing.T) (r *runtime, c, pool *container, back func()) {
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
	back = r.node.RemoveFile(pool.dir, "cpuset.cpus")
	r.connect()
	require.Empty(t, r.cpus(c))
	return r, c, pool, back
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
			r, c, pool, back := away(t)
			require.ErrorContains(t, call(r, c), "could not be moved off claimed CPUs")
			require.Error(t, r.plugin.Apply(t.Context()))
			require.Empty(t, r.cpus(c))
			require.NotContains(t, c.spec, "cpuset.cpus")

			back()
			require.NoError(t, call(r, c))
			require.Equal(t, "0-3,8-15", r.cpus(pool))
		})
	}
}

// reconnect begins another session of the same actuator.
func (r *runtime) reconnect() {
	r.plugin.Disconnected(context.Background(), "gone")
	r.session = r.plugin.NewSession(func() string { return r.nri })
	_, err := r.session.Configure(context.Background(), "", "containerd", r.version)
	require.NoError(r.t, err)
	require.NoError(r.t, r.synchronize())
}

// TestLostAnswer checks I1: a creation whose answer the runtime may not have read
// does not mean that the pool has left the CPUs.
func TestLostAnswer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.plugin.Disconnected(t.Context(), "gone")
	pod := sandbox(podB)
	pool := &container{pod: pod, dir: r.podDir(podB) + "/pool", api: &api.Container{
		Id: "pool", PodSandboxId: pod.Id, Name: "pool", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/pool"},
	}}
	r.addPod(podB)
	r.node.AddCgroup(pool.dir)
	r.node.RemoveFile(pool.dir, "cpuset.cpus")
	r.containers["pool"] = pool
	r.node.AddCgroup(c.dir)
	r.reconnect()
	require.ErrorContains(t, r.session.StartContainer(t.Context(), c.pod, c.api), "could not be moved off claimed CPUs")
	require.Empty(t, r.cpus(c))
}

// TestStoppedContainerThatLives checks I1: a container that has stopped counts until
// its cgroup is gone, whether the runtime lists it or not.
func TestStoppedContainerThatLives(t *testing.T) {
	for name, again := range map[string]func(r *runtime, p *container){
		"listed as stopped, to a new actuator": func(r *runtime, _ *container) { r.connect() },
		"not listed": func(r *runtime, p *container) {
			delete(r.containers, p.api.Id)
			r.reconnect()
		},
		"not listed, and its processes cannot be read": func(r *runtime, p *container) {
			delete(r.containers, p.api.Id)
			r.node.EndProcesses(p.dir)
			r.node.Fail(p.dir, "cgroup.events", syscall.EIO)
			r.reconnect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			p := r.run("p", podB)
			_, err := r.session.StopContainer(t.Context(), p.pod, p.api)
			require.NoError(t, err)
			p.api.State = api.ContainerState_CONTAINER_STOPPED
			again(r, p)
			c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
			require.Equal(t, "4-7", r.cpus(c))
			require.Equal(t, "0-3,8-15", r.cpus(p))

			r.node.RemoveCgroup(p.dir)
			require.NoError(t, r.plugin.Apply(t.Context()))
		})
	}
}

// TestEndedWhileAway checks that the partition of a container that ended while no
// runtime was connected ends: its CPUs would block the next container's.
func TestEndedWhileAway(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	delete(r.containers, "c")
	r.node.EndProcesses(c.dir)
	r.reconnect()
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
	require.Empty(t, r.node.File(c.dir, contract.FileExclusive))
}

// TestRemovedContainerThatCannotBeWritten checks I7: a cgroup that stays after its
// container was removed keeps no claim from the node.
func TestRemovedContainerThatCannotBeWritten(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.Fail(c.dir, contract.FilePartition, syscall.EIO)
	r.node.Fail(c.dir, "cpuset.cpus", syscall.EIO)
	require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
	r.run("next", podB, r.node.Prepare(podB, testnode.UID(77), contract.Decision{CPUs: contracttest.CPUs("8-11")})...)
}

// TestPartitionThatDoesNotEnd checks that the cgroups above a partition keep its
// CPUs while it cannot be ended: some kernels lose the CPUs otherwise. It ends as
// soon as it can, also while its claim stays for another container.
func TestPartitionThatDoesNotEnd(t *testing.T) {
	for _, released := range []bool{true, false} {
		t.Run(fmt.Sprintf("claim released %t", released), func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
			back := r.node.Fail(c.dir, contract.FilePartition, syscall.EIO)
			require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
			if released {
				r.node.Unprepare(podA, claimA, "4-7")
			}
			_ = r.plugin.Apply(t.Context())
			require.Equal(t, "4-7", r.node.File(filepath.Dir(c.dir), contract.FileExclusive))

			back()
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
			require.Empty(t, r.node.File(c.dir, contract.FileExclusive))
			if released {
				require.Empty(t, r.node.File(filepath.Dir(c.dir), contract.FileExclusive))
			}
		})
	}
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
	free := r.node.Block(pool.dir, "cpuset.cpus")
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

// The announced generation is the last one that was applied everywhere: the frontend
// must not take a node state for applied that a container lacks (I1).
func TestGenerationOfAFailedApply(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("pooled", podA)
	require.NoError(t, r.plugin.Apply(t.Context()))
	before := r.node.State.Generation
	require.Equal(t, before, r.announced.Generation)

	back := r.node.Fail(c.dir, "cpuset.cpus", syscall.EIO)
	r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("4-5")})
	require.NotEqual(t, before, r.node.State.Generation)
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "cpuset.cpus")
	require.Equal(t, before, r.announced.Generation, "apply")
	require.NoError(t, r.synchronize())
	require.Equal(t, before, r.announced.Generation, "synchronize")

	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, r.node.State.Generation, r.announced.Generation)
	require.Equal(t, "0-3,6-15", r.cpus(c))
}

// I1: containers with a claim of memory only run on the pool. They leave the CPUs of a
// new claim before its container gets them, like containers without a claim.
func TestMemoryClaimLeavesClaimedCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	plain := r.run("plain", podB)
	memory := r.run("memory", podA, r.node.Prepare(podA, claimA, contract.Decision{Mems: contracttest.NUMANodes("0")})...)
	require.Equal(t, "0-15", r.cpus(memory))
	env := r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("4-5")})
	_, err := r.create("exclusive", podC, env...)
	require.NoError(t, err)
	require.Equal(t, "0-3,6-15", r.cpus(memory))
	require.Equal(t, "0-3,6-15", r.cpus(plain))
}
