// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// soon returns a call's context as a runtime makes it. It bounds only how long
// the test waits for the answer.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestWriteThatNeverReturns covers A67: claims are refused in time, and
// containers without a claim start. The announcement, readiness and liveness
// say so, and all of it recovers.
func TestWriteThatNeverReturns(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, quad())
	claimed := func(id string) (*api.PodSandbox, *api.Container) {
		pod := sandbox(podA)
		return pod, &api.Container{
			Id: id, PodSandboxId: pod.Id, Name: id, Env: env,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/" + id},
		}
	}
	r.addPod(podA)
	free := r.node.Block(pool.dir, "cpuset.cpus")
	for _, id := range []string{"the one that waits for the kernel", "the next"} {
		pod, ctr := claimed(id)
		_, _, err := r.session.CreateContainer(soon(t), pod, ctr)
		require.ErrorContains(t, err, "busy with another container", id)
	}

	pod := sandbox(podC)
	r.addPod(podC)
	plain := &api.Container{
		Id: "plain", PodSandboxId: pod.Id, Name: "plain",
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/plain"},
	}
	a, _, err := r.session.CreateContainer(soon(t), pod, plain)
	require.NoError(t, err, "I7")
	require.Equal(t, "0-3,8-15", a.GetLinux().GetResources().GetCpu().GetCpus(), "the last pool that is known")
	r.node.AddCgroup("kubepods/burstable/pod" + podC + "/plain")
	require.NoError(t, r.session.StartContainer(soon(t), pod, plain))
	updates, err := r.session.UpdateContainer(soon(t), pod, plain, &api.LinuxResources{})
	require.NoError(t, err)
	require.Equal(t, "0-3,8-15", updates[0].GetLinux().GetResources().GetCpu().GetCpus())
	_, err = r.session.StopContainer(soon(t), pod, &api.Container{Id: "of no interest"})
	require.NoError(t, err)

	r.plugin.Announce(t.Context())
	require.True(t, r.announced.Connected, "not yet longer than a runtime waits")
	r.later(5 * time.Second)
	r.plugin.Announce(t.Context())
	require.False(t, r.announced.Connected)
	require.Contains(t, r.announced.Disconnected, "has been busy for 5s")
	require.ErrorContains(t, r.plugin.Ready(), "has been busy for 5s")
	require.NoError(t, r.plugin.Alive())
	r.later(time.Minute)
	require.ErrorContains(t, r.plugin.Alive(), "has been busy for 1m5s")

	free()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(pool))
	require.Equal(t, "0-3,8-15", r.node.File("kubepods/burstable/pod"+podC+"/plain", "cpuset.cpus"), "known, and brought to the pool")
	require.NoError(t, r.plugin.Ready())
	require.NoError(t, r.plugin.Alive())
	require.True(t, r.announced.Connected)
	r.run("at last", podA, env...)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-1") })
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-1", r.node.File("kubepods/burstable/pod"+podC+"/plain", "cpuset.cpus"))
}

// TestCreationAfterALateAnswer covers A80: the runtime was late itself, did not read the refusal, and created the container.
func TestCreationAfterALateAnswer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	c := r.waiting("c", podA, r.node.Prepare(podA, claimA, quad())...)
	free := r.node.Block(pool.dir, "cpuset.cpus")
	_, _, err := r.session.CreateContainer(soon(t), c.pod, c.api)
	require.ErrorContains(t, err, "busy with another container")
	free()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	require.Equal(t, "0-3,8-15", r.cpus(pool))
}

// TestStartWhileBusy covers A67 and A80: while the actuator is busy, a container starts if
// the guard has checked it, because a pod that is never restarted would fail for good.
func TestStartWhileBusy(t *testing.T) {
	for name, hooks := range map[string]*api.Hooks{
		"guarded":      {CreateRuntime: []*api.Hook{{Path: "/opt/nri-actuator", Args: []string{"nri-actuator", "guard"}}}},
		"not guarded":  nil,
		"another hook": {CreateRuntime: []*api.Hook{{Path: "/opt/other", Args: []string{"other", "guard"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			pool := r.run("pool", podB)
			c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
			require.NoError(t, err)
			c.api.Hooks = hooks
			r.node.AddCgroup(c.dir)
			r.writeSpec(c)
			free := r.node.Block(pool.dir, "cpuset.cpus")
			_, _, err = r.session.CreateContainer(soon(t), c.pod, &api.Container{
				Id: "next", PodSandboxId: c.pod.Id, Name: "next", Env: c.api.Env,
				Linux: &api.LinuxContainer{CgroupsPath: c.pod.Linux.CgroupParent + "/next"},
			})
			require.ErrorContains(t, err, "busy with another container")

			err = r.session.StartContainer(soon(t), c.pod, c.api)
			free()
			if name != "guarded" {
				require.ErrorContains(t, err, "busy with another container")
				return
			}
			require.NoError(t, err)
			r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "4-7", r.cpus(c), "the next holder of the lock knows the container")
			require.Equal(t, "0-3,8-15", r.cpus(pool))
		})
	}
}

// TestSynchronizeThatTakesLong checks that the runtime gets its answer in time,
// because it would drop the actuator otherwise, and that the work is done
// later.
func TestSynchronizeThatTakesLong(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-7") })
	free := r.node.Block(pool.dir, "cpuset.cpus")
	r.session = r.plugin.NewSession(func() string { return r.nri })
	_, err := r.session.Configure(t.Context(), "", "containerd", "v2.2.7")
	require.NoError(t, err)
	_, err = r.session.Synchronize(soon(t), []*api.PodSandbox{pool.pod}, []*api.Container{pool.api})
	require.NoError(t, err)
	require.False(t, r.session.Synchronised())
	_, _, err = r.session.CreateContainer(soon(t), sandbox(podA), &api.Container{Id: "c", Env: r.node.Prepare(podA, claimA, quad())})
	require.ErrorContains(t, err, "busy")

	// The waiting list is older than this container.
	pod := sandbox(podC)
	r.addPod(podC)
	plain := &api.Container{
		Id: "plain", PodSandboxId: pod.Id, Name: "plain",
		Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/plain"},
	}
	_, _, err = r.session.CreateContainer(soon(t), pod, plain)
	require.NoError(t, err)
	r.node.AddCgroup("kubepods/burstable/pod" + podC + "/plain")
	require.NoError(t, r.session.StartContainer(soon(t), pod, plain))

	free()
	for !r.session.Synchronised() {
		<-r.plugin.Due()
		require.NoError(t, r.plugin.CatchUp(t.Context()))
	}
	require.True(t, r.announced.Connected)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-1") })
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-1", r.cpus(pool))
	require.Equal(t, "0-1", r.node.File("kubepods/burstable/pod"+podC+"/plain", "cpuset.cpus"))
}

// TestReconnectWithoutANodeFile checks that the known containers, and so the
// last known pool, survive a reconnection (I1).
func TestReconnectWithoutANodeFile(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.session = r.plugin.NewSession(func() string { return r.nri })
	_, err := r.session.Configure(t.Context(), "", "containerd", "v2.2.7")
	require.NoError(t, err)
	require.NoError(t, r.synchronize())
	pool, err := r.create("pool", podB)
	require.NoError(t, err)
	require.Equal(t, "0-3,8-15", pool.spec["cpuset.cpus"])
}

// TestUnreadableClaimAtAStart checks that a container stays on its claim's CPUs
// if a new actuator cannot read the claim file (I4).
func TestUnreadableClaimAtAStart(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	r.connect()
	require.Equal(t, "4-7", r.cpus(c))
}

// waiting makes a container that was created without an actuator's answer. Its guard waits.
func (r *runtime) waiting(id, podUID string, env ...string) *container {
	r.addPod(podUID)
	pod := sandbox(podUID)
	c := &container{pod: pod, dir: r.podDir(podUID) + "/" + id, api: &api.Container{Id: id, PodSandboxId: pod.Id, Name: id, Env: env,
		State: api.ContainerState_CONTAINER_CREATED, Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/" + id}}}
	r.containers[id] = c
	r.node.AddCgroup(c.dir)
	return c
}

// TestGuardedContainerWaitsForThePool covers A80, I1: the guard lets a program
// start when its cgroup has the decision, so the cgroup gets the decision after
// the pool has left its CPUs.
func TestGuardedContainerWaitsForThePool(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, quad())
	c := r.waiting("c", podA, env...)
	back := r.node.RemoveFile(pool.dir, "cpuset.cpus")
	r.connect()
	require.Empty(t, r.cpus(c))
	back()
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	require.Equal(t, "0-3,8-15", r.cpus(pool))
}

// An answer that the runtime did not wait for looks like an answer in time. What the runtime then writes from the container's
// own spec is written over before the container starts.
func TestAnswerThatCameTooLate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	r.node.SetFile(c.dir, "memory.min", "0")
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
}

// TestLostConnection checks that a late call of an ended session does nothing.
func TestLostConnection(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	old := r.session
	r.plugin.Disconnected(t.Context(), "gone")
	_, err := old.UpdateContainer(t.Context(), c.pod, c.api, &api.LinuxResources{})
	require.ErrorContains(t, err, "the connection is over")
	require.Error(t, old.RemoveContainer(t.Context(), c.pod, c.api))
	r.node.SetFile(c.dir, "cpuset.cpus", "0")
	require.NoError(t, old.PostUpdateContainer(t.Context(), c.pod, c.api))
	require.Equal(t, "0", r.cpus(c))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c), "still known, and kept in order without a runtime")
}

// TestReconnectMovesAreNoRepairs checks that the actuator's own moves, and
// moves of the pool, do not count as another program's writes.
func TestReconnectMovesAreNoRepairs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("pool", podB)
	r.plugin.Disconnected(t.Context(), "gone")
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-7") })
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.session = r.plugin.NewSession(func() string { return r.nri })
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	require.NoError(t, r.synchronize())
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-1") })
	r.connect()
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"), "a new actuator")
}

// TestGenerationOfAFailedSynchronisation checks that a state that was not
// applied everywhere is not announced.
func TestGenerationOfAFailedSynchronisation(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-7") })
	back := r.node.RemoveFile(pool.dir, "cpuset.cpus")
	r.announced.Generation = 0
	r.connect()
	require.True(t, r.announced.Connected)
	require.Zero(t, r.announced.Generation)
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, r.node.State.Generation, r.announced.Generation)
}

// TestUnlistedSandbox covers A65: a container keeps its claim if the runtime
// lists it without its sandbox.
func TestUnlistedSandbox(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	claimed := r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	part := r.run("part", podC, r.node.Prepare(podC, claimB, partitioned("8-9", contract.PartitionRoot))...)
	pool := r.run("pool", podB)
	for _, c := range []*container{claimed, part, pool} {
		c.pod = nil
	}
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-1") })
	r.connect()
	require.Equal(t, "4-7", r.cpus(claimed))
	require.Equal(t, "1073741824", r.node.File(claimed.dir, "memory.min"))
	require.Equal(t, contract.PartitionRoot, r.node.File(part.dir, contract.FilePartition))
	require.Equal(t, "8-9", r.node.File(filepath.Dir(part.dir), contract.FileExclusive), "what is above a partition keeps its CPUs")
	require.Equal(t, "0-1", r.cpus(pool), "a container without a claim is the pool's, whoever's pod it is")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(claimed))
	require.Equal(t, contract.PartitionRoot, r.node.File(part.dir, contract.FilePartition))
}

// TestFailedUpdate covers A68: if an update fails, runc restores its own old
// cpuset, and no event follows.
func TestFailedUpdate(t *testing.T) { synctest.Test(t, testFailedUpdate) }

func testFailedUpdate(t *testing.T) {
	r, began := newRuntime(t, t.TempDir()), time.Now()
	pool := r.run("pool", podB)
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	_, err := r.session.UpdateContainer(t.Context(), pool.pod, pool.api, &api.LinuxResources{})
	require.NoError(t, err)
	r.writeSpec(pool)
	require.Equal(t, "0-15", r.cpus(pool))
	for r.cpus(pool) != "0-3,8-15" {
		<-r.plugin.Due()
		require.NoError(t, r.plugin.CatchUp(t.Context()))
	}
	require.LessOrEqual(t, time.Since(began), 2*time.Second)
}

// TestCreatedWhileAway covers A80: a container that was created without the
// actuator gets its decision as soon as its cgroup exists and the pool has left
// its CPUs. It gets the decision again if the runtime writes its own values
// later.
func TestCreatedWhileAway(t *testing.T) {
	for name, decision := range map[string]contract.Decision{"pool": quad(), "partition": partitioned("4-7", contract.PartitionRoot)} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			pool := r.run("pool", podB)
			env := r.node.Prepare(podA, claimA, decision)
			r.addPod(podA)
			pod := sandbox(podA)
			c := &container{pod: pod, dir: r.podDir(podA) + "/c", api: &api.Container{Id: "c", PodSandboxId: pod.Id, Name: "c", Env: env,
				State: api.ContainerState_CONTAINER_CREATED, Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"}}}
			r.containers["c"] = c
			r.connect()
			r.node.SetFile(pool.dir, "cpuset.cpus", "0-15")
			r.node.AddCgroup(c.dir)
			for range 2 {
				<-r.plugin.Due()
				require.NoError(t, r.plugin.CatchUp(t.Context()))
				require.Equal(t, "4-7", r.cpus(c))
				if decision.Partition == "" {
					require.Equal(t, "0-3,8-15", r.cpus(pool))
					r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
				} else {
					require.Equal(t, "4-7", r.node.File(c.dir, contract.FileExclusive))
					require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
				}
			}
			<-r.plugin.Due()
			require.NoError(t, r.plugin.CatchUp(t.Context()))
			require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api))
			moved := 0
			if decision.Partition == "" {
				moved = 1 // the pool container, moved by hand
			}
			require.EqualValues(t, moved, r.metric("cpumem_actuator_repaired_total", "cpuset.cpus"),
				"the container itself is still being made")
		})
	}
}

// TestVirtualMachine checks that a container without a cgroup is known until
// the runtime removes it.
func TestVirtualMachine(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("vm", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api))
	c.api.State = api.ContainerState_CONTAINER_RUNNING
	require.NoError(t, r.plugin.Apply(t.Context()))
	// Its CPUs are in use, so the last known pool stands in for the lost node
	// file.
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	pool, err := r.create("pool", podB)
	require.NoError(t, err)
	require.Equal(t, "0-3,8-15", pool.spec["cpuset.cpus"])
}

// TestGiveBackIsTriedAgain checks that partition CPUs that could not be taken
// from a pod are taken at the next Apply.
func TestGiveBackIsTriedAgain(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	podDir := filepath.Dir(c.dir)
	require.NoError(t, r.remove(c))
	r.node.Unprepare(podA, claimA, "4-7")
	back := r.node.Fail(podDir, contract.FileExclusive, syscall.EIO)
	_ = r.plugin.Apply(t.Context())
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.node.File(podDir, contract.FileExclusive))
}

// TestCreatedPartitionWithoutAReadableClaim checks I4 for a created container,
// as for a running one.
func TestCreatedPartitionWithoutAReadableClaim(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	r.writeSpec(c)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	r.connect()
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
}

// TestPostUpdateThatCameTooLate checks I1: the runtime has written CPUs that a claim got meanwhile, and no event comes after
// this one.
func TestPostUpdateThatCameTooLate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool, other := r.run("pool", podB), r.run("other", podC)
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	<-r.plugin.Due() // the look after the creation
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	free := r.hang(t, other)
	require.NoError(t, r.session.PostUpdateContainer(soon(t), pool.pod, pool.api))
	free()
	r.writeSpec(pool)
	require.Equal(t, "0-15", r.cpus(pool), "the runtime's write is the last")
	<-r.plugin.Due()
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "0-3,8-14", r.cpus(pool))
}

// TestStartThatNoCgroupShows checks I5: a container whose cgroup is not where the runtime says, as in a virtual machine, has its
// values from its creation. Nothing shows that if this actuator did not answer the creation and no guard looked.
func TestStartThatNoCgroupShows(t *testing.T) {
	guard := &api.Hooks{CreateRuntime: []*api.Hook{{Path: "/opt/nri-actuator", Args: []string{"nri-actuator", "guard"}}}}
	for name, c := range map[string]struct {
		answered bool
		hooks    *api.Hooks
		err      string
	}{
		"answered": {answered: true},
		"guarded":  {hooks: guard},
		"neither":  {err: "cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			env := r.node.Prepare(podA, claimA, quad())
			var started *container
			if c.answered {
				var err error
				started, err = r.create("c", podA, env...)
				require.NoError(t, err)
			} else {
				started = r.waiting("c", podA, env...)
				r.node.RemoveCgroup(started.dir)
				r.connect()
			}
			started.api.Hooks = c.hooks
			err := r.session.StartContainer(t.Context(), started.pod, started.api)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}
