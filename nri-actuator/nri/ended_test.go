// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	gort "runtime"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// hang makes Apply wait for the kernel in the cgroup of the container pool, with the
// lock.
func (r *runtime) hang(t *testing.T, pool *container) (free func()) {
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = s.Shared.CPUs.Difference(contracttest.CPUs("15")) })
	let := r.node.Block(pool.dir, "cpuset.cpus")
	done := make(chan struct{})
	go func() {
		_ = r.plugin.Apply(t.Context())
		close(done)
	}()
	for r.plugin.Alive() == nil {
		r.later(time.Minute)
		gort.Gosched()
	}
	return func() {
		let()
		<-done
	}
}

// synchronizeLate reconnects while the lock is held: the runtime's list waits.
func (r *runtime) synchronizeLate(t *testing.T) {
	r.plugin.Disconnected(t.Context(), "gone")
	r.session = r.plugin.NewSession(func() string { return r.nri })
	_, err := r.session.Configure(t.Context(), "", "containerd", r.version)
	require.NoError(t, err)
	var pods []*api.PodSandbox
	var list []*api.Container
	for _, c := range r.containers {
		pods, list = append(pods, c.pod), append(list, c.api)
	}
	_, err = r.session.Synchronize(soon(t), pods, list)
	require.NoError(t, err)
	require.False(t, r.session.Synchronised())
}

func (r *runtime) catchUp(t *testing.T) {
	for !r.session.Synchronised() {
		<-r.plugin.Due()
		require.NoError(t, r.plugin.CatchUp(t.Context()))
	}
}

// foreign is a container that the runtime created while no actuator was there.
func (r *runtime) foreign(id, podUID string, env ...string) *container {
	pod := sandbox(podUID)
	c := &container{
		pod: pod, dir: r.podDir(podUID) + "/" + id, spec: map[string]string{}, running: true,
		api: &api.Container{
			Id: id, PodSandboxId: pod.Id, Name: id, Env: env, State: api.ContainerState_CONTAINER_RUNNING,
			Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/" + id},
		},
	}
	r.addPod(podUID)
	r.node.AddCgroup(c.dir)
	r.containers[id] = c
	return c
}

// TestLateStopIsNoRemoval checks I1: a stop that could not get the lock does not
// forget a container whose processes live, while the runtime's list waits.
func TestLateStopIsNoRemoval(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	x := r.foreign("x", podC)
	free := r.hang(t, pool)
	r.synchronizeLate(t)
	_, err := r.session.StopContainer(soon(t), x.pod, x.api)
	require.NoError(t, err)
	free()
	r.catchUp(t)
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	require.Equal(t, "0-3,8-14", r.cpus(x))
}

// TestLateStopOfAVirtualMachine checks that a container without a cgroup is known
// until the runtime removes it, also after a stop that could not get the lock.
func TestLateStopOfAVirtualMachine(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	vm, err := r.create("vm", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	require.NoError(t, r.session.StartContainer(t.Context(), vm.pod, vm.api))
	pool := r.run("pool", podB)
	free := r.hang(t, pool)
	_, err = r.session.StopContainer(soon(t), vm.pod, vm.api)
	require.NoError(t, err)
	free()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	next, err := r.create("next", podC)
	require.NoError(t, err)
	require.NotEmpty(t, next.spec["cpuset.cpus"], "the virtual machine uses claimed CPUs")
}

// TestRemovalOvertakesTheList checks that a list that had to wait does not bring
// back a container that the runtime has removed since.
func TestRemovalOvertakesTheList(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	x := r.foreign("x", podC)
	x.api.Linux.CgroupsPath = ""
	free := r.hang(t, pool)
	r.synchronizeLate(t)
	free()
	require.NoError(t, r.session.RemoveContainer(t.Context(), x.pod, x.api))
	r.catchUp(t)
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
}

// TestStartOvertakesTheList checks I5: a container that was adopted without a runtime
// gets its claim's values when it starts, although the runtime's list waits.
func TestStartOvertakesTheList(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	env := r.node.Prepare(podA, claimA, contract.Decision{Mems: contracttest.NUMANodes("1"), Memory: &contract.Memory{
		Min: 1 << 30, Low: contract.Max, High: contract.Max, Max: contract.Max,
	}})
	r.node.Prepare(podC, claimB, contract.Decision{CPUs: contracttest.CPUs("8")})
	r.plugin.Disconnected(t.Context(), "gone")
	c := r.foreign("c", podA, env...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	require.NoError(t, r.plugin.Refresh(t.Context()))
	require.Equal(t, "0-7,9-15", r.cpus(c), "adopted")
	free := r.hang(t, pool)
	r.synchronizeLate(t)
	free()
	r.node.Prepare(podB, testnode.UID(9), contract.Decision{CPUs: contracttest.CPUs("10")})
	require.NoError(t, r.session.StartContainer(t.Context(), c.pod, c.api))
	require.Equal(t, "1", r.node.File(c.dir, "cpuset.mems"))
	require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
	r.catchUp(t)
	require.Equal(t, "1", r.node.File(c.dir, "cpuset.mems"))
}

// TestPinnedContainerWithoutAPlace covers A58: a container that another program
// pinned to unmanaged CPUs refuses no claim, also if its cgroup is not known.
func TestPinnedContainerWithoutAPlace(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.CPUs, s.Shared.UnmanagedCPUs = contracttest.CPUs("0-11"), contracttest.CPUs("12-15")
	})
	pod := sandbox(podC)
	r.addPod(podC)
	_, _, err := r.session.CreateContainer(t.Context(), pod, &api.Container{
		Id: "pinned", PodSandboxId: pod.Id, Name: "pinned",
		Linux: &api.LinuxContainer{Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "12-13"}}},
	})
	require.NoError(t, err)
	r.run("claimed", podA, r.node.Prepare(podA, testnode.UID(7), quad())...)
	require.NoError(t, r.plugin.Apply(t.Context()))
}

// The runtime may report no end of a container whose creation failed. Such a container is forgotten when kubelet tries again and
// when its pod is gone: a pod that never starts must not fill the memory.
func TestFailedCreationsAreForgotten(t *testing.T) {
	for name, claim := range map[string]bool{"without a claim": false, "with a claim": true} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			r.addPod(podA)
			var env []string
			if claim {
				env = r.node.Prepare(podA, claimA, quad())
			}
			e := enforce.New(r.plugin.Options.Options)
			add := func(id, name string) *enforce.Container {
				c := &enforce.Container{
					ID: id, Name: name, References: claims.Container{PodUID: podA}.WithEnv(env),
					Cgroups: enforce.Cgroups{Dir: r.podDir(podA) + "/" + id, Pod: r.podDir(podA)},
				}
				e.Add(t.Context(), c)
				return c
			}
			apply := func() {
				_, err := e.ApplyAll(t.Context())
				require.NoError(t, err)
			}
			add("other", "ns/pod/other")
			add("first", "ns/pod/c")
			second := add("second", "ns/pod/c")
			require.Nil(t, e.Find("first"), "kubelet has tried again")
			require.NotNil(t, e.Find("other"))
			r.node.AddCgroup(second.Cgroups.Dir)
			add("third", "ns/pod/c")
			require.NotNil(t, e.Find("second"), "a process may be in its cgroup")
			r.node.RemoveCgroup(second.Cgroups.Dir)
			apply()
			require.NotNil(t, e.Find("third"), "its cgroup is not there yet")
			r.node.RemoveCgroup(r.podDir(podA))
			apply()
			require.False(t, e.HasContainers(), "the pod is gone")
		})
	}
}

// A creation that failed has no partition: the next container of its claim may have one.
func TestPartitionOfAFailedCreation(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	unknown := r.podDir(podA) + "/unknown"
	r.node.AddCgroup(unknown)
	r.node.SetFile(unknown, "cpuset.cpus", "0-15")
	e := enforce.New(r.plugin.Options.Options)
	e.Replace(t.Context(), []*enforce.Container{at(c, false)})
	require.True(t, e.ApplyWaiting(t.Context()))
	require.Contains(t, e.Invalid(), claimA)
	r.node.RemoveCgroup(c.dir)
	require.True(t, e.ApplyWaiting(t.Context()), "it may come back")
	require.Empty(t, e.Invalid())
}
