// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// at returns the actuator's container for c, which was started or not.
func at(c *container, started bool) *enforce.Container {
	return &enforce.Container{
		ID: c.api.Id, Name: c.api.Name, References: claims.Container{PodUID: c.pod.Uid}.WithEnv(c.api.Env),
		Cgroups: enforce.Cgroups{Dir: c.dir, Pod: "kubepods/burstable/pod" + c.pod.Uid}, Life: enforce.Life{Started: started},
	}
}

// A start that is only reported, or that the runtime's list shows, is a start: the
// container is forgotten when its cgroup is gone.
func TestStartWithoutACall(t *testing.T) {
	for name, start := range map[string]func(*enforce.Enforcer, *container){
		"reported": func(e *enforce.Enforcer, c *container) {
			for _, started := range []bool{false, true, false} {
				_, known := e.FindOrAdd(at(c, started))
				require.True(t, known)
			}
		},
		"listed": func(e *enforce.Enforcer, c *container) { e.Replace(t.Context(), []*enforce.Container{at(c, true)}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			c := r.foreign("c", podA)
			e := enforce.New(r.plugin.Options.Options)
			e.Add(t.Context(), at(c, false))
			start(e, c)
			_, err := e.ApplyAll(t.Context())
			require.NoError(t, err)
			r.node.RemoveCgroup(c.dir)
			_, err = e.ApplyAll(t.Context())
			require.NoError(t, err)
			require.Nil(t, e.Find("c"))
		})
	}
}

// A write that fails does not make the actuator forget that it has seen the cgroup: when
// the cgroup is gone, the container is forgotten.
func TestFailedWriteIntoASeenCgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA)
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), at(c, true))
	for file, value := range map[string]string{"cpuset.cpus": "0", "cpuset.mems": "0"} {
		r.node.SetFile(c.dir, file, value)
		r.node.FailWrites(c.dir, file, syscall.EIO)
	}
	_, err := e.ApplyAll(t.Context())
	require.ErrorIs(t, err, syscall.EIO)
	r.node.RemoveCgroup(c.dir)
	_, err = e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.Nil(t, e.Find("c"))
}

// A file that cannot be written keeps no other file of its cgroup from being written.
func TestFailedWriteBesideOthers(t *testing.T) {
	values := map[string]string{"cpuset.cpus": "4-7", "cpuset.mems": "1", "memory.min": "8192", "memory.max": "8192"}
	foreign := map[string]string{"cpuset.cpus": "0-15", "cpuset.mems": "0-1", "memory.min": "0", "memory.max": "max"}
	for fails := range values {
		t.Run(fails, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			d := quad()
			d.CPUs, d.Mems = contracttest.CPUs("4-7"), contracttest.NUMANodes("1")
			d.Memory = &contract.Memory{Min: 8192, High: contract.Max, Max: 8192}
			c := r.run("c", podA, r.node.Prepare(podA, claimA, d)...)
			for file, value := range foreign {
				r.node.SetFile(c.dir, file, value)
			}
			r.node.FailWrites(c.dir, fails, syscall.EIO)
			require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
			for file, value := range values {
				if file == fails {
					value = foreign[file]
				}
				require.Equal(t, value, r.node.File(c.dir, file), file)
			}
		})
	}
}

// A created container whose claim is refused keeps the runtime's values: its guard refuses
// it.
func TestRefusedContainerThatWaits(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podB, r.node.Prepare(podA, claimA, quad())...)
	before := r.node.File(c.dir, "cpuset.cpus")
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), at(c, false))
	require.True(t, e.ApplyWaiting(t.Context()))
	require.Equal(t, before, r.node.File(c.dir, "cpuset.cpus"))
}

// The cgroup of a container that has not started may go and come back: the runtime tries
// again.
func TestCreatedContainerIsNotForgotten(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), at(c, false))
	for range 2 {
		_, err := e.ApplyAll(t.Context())
		require.NoError(t, err)
		require.NotNil(t, e.Find("c"))
		if r.node.Exists(c.dir) {
			r.node.RemoveCgroup(c.dir)
		}
	}
}

// A container whose pod's cgroup is not known may start all the same.
func TestCreatedContainerOfAnUnknownPodCgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := at(r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...), false)
	c.Cgroups.Dir, c.Cgroups.Pod = "", ""
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), c)
	_, _ = e.ApplyAll(t.Context()) // the error is about the unknown cgroup
	require.NotNil(t, e.Find("c"))
}

// A container that the runtime no longer lists is forgotten at once if its cgroup is gone.
func TestUnlistedContainerWithoutACgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA)
	e := enforce.New(r.plugin.Options.Options)
	e.Add(t.Context(), at(c, true))
	_, err := e.ApplyAll(t.Context())
	require.NoError(t, err)
	r.node.RemoveCgroup(c.dir)
	e.Replace(t.Context(), nil)
	require.False(t, e.HasContainers())
}

// A stopped container without a known cgroup has no processes that a cgroup bounds.
func TestStoppedContainerWithoutAKnownCgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA)
	c.api.State, c.api.Linux.CgroupsPath = api.ContainerState_CONTAINER_STOPPED, "../elsewhere"
	require.NoError(t, r.synchronize())
	require.NoError(t, r.plugin.Apply(t.Context()))
	c.api.State = api.ContainerState_CONTAINER_RUNNING
	require.NoError(t, r.synchronize())
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "elsewhere")
}

// A container that waits and has its CPUs does not wait for the pool: only its other
// values are written.
func TestWaitingContainerWithItsCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	d := quad()
	d.Memory = &contract.Memory{Min: 4096}
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, d)...)
	r.node.SetFile(c.dir, "cpuset.cpus", "4-7")
	r.node.Fail(pool.dir, "cpuset.cpus", syscall.EIO)
	e := enforce.New(r.plugin.Options.Options)
	e.Replace(t.Context(), []*enforce.Container{at(pool, true), at(c, false)})
	require.True(t, e.ApplyWaiting(t.Context()))
	require.Equal(t, "4096", r.node.File(c.dir, "memory.min"))
}

// A claim without CPUs takes nothing out of the pool: it does not wait for a pool container
// whose cgroup is not known.
func TestMemoryClaimBesideAnUnknownCgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	for id, d := range map[string]contract.Decision{"memory": {Mems: contracttest.NUMANodes("0")}, "cpu": quad()} {
		unknown := r.foreign("unknown", podB)
		unknown.api.Linux.CgroupsPath = "../elsewhere"
		require.NoError(t, r.synchronize())
		env := r.node.Prepare(podA, claimA, d)
		_, err := r.create(id, podA, env...)
		require.Equal(t, id == "cpu", err != nil, "%s: %v", id, err)
		r.node.Unprepare(podA, claimA, d.CPUs.String())
	}
}

// A claim that needs nothing of its pod needs no known cgroup of the pod.
func TestPodThatNeedsNothing(t *testing.T) {
	for name, parent := range map[string]string{"unknown": "../elsewhere", "gone": "/kubepods/burstable/pod" + podA} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			pod := sandbox(podA)
			pod.Linux.CgroupParent = parent
			_, _, err := r.session.CreateContainer(t.Context(), pod, &api.Container{
				Id: "c", PodSandboxId: pod.Id, Name: "c", Env: r.node.Prepare(podA, claimA, quad()),
				Linux: &api.LinuxContainer{CgroupsPath: "/" + r.podDir(podA) + "/c"},
			})
			require.NoError(t, err)
		})
	}
}

// What another program wrote over a pod's partition CPUs is repaired and not announced:
// the partition is announced if it is lost.
func TestDriftOfPartitionCPUsIsNotAnnounced(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("plain", podA)
	r.node.Change(func(s *contract.NodeState) {
		s.PartitionCPUs = map[string]contract.CPUSet{"": contracttest.CPUs("4-7")}
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.node.File("kubepods", contract.FileExclusive))
	r.node.SetFile("kubepods", contract.FileExclusive, "4-5")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.node.File("kubepods", contract.FileExclusive))
	require.Equal(t, 1.0, r.metric("cpumem_actuator_repaired_total"))
	require.Empty(t, r.announced.Overwritten)
}

// No container is created while a value of its pod cannot be read: the value that another
// program wrote would be lost.
func TestPodWithAnUnreadableValue(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.addPod(podA)
	env := r.node.Prepare(podA, claimA, quad())
	r.wantInPod(podA, contract.Files{"memory.min": "8192"})
	back := r.node.Fail(r.podDir(podA), "memory.min", syscall.EIO)
	_, err := r.create("c", podA, env...)
	require.ErrorContains(t, err, "its pod: cgroup "+r.podDir(podA)+": memory.min: input/output error")
	back()
	r.run("c", podA, env...)
	require.Equal(t, "8192", r.node.File(r.podDir(podA), "memory.min"))
}

// unlisted is a hierarchy with a cgroup that does not list its marks.
type unlisted struct {
	cgroups.Hierarchy
	dir string
}

func (u unlisted) Open(dir string) (cgroups.Cgroup, error) {
	c, err := u.Hierarchy.Open(dir)
	if dir == u.dir && err == nil {
		return withoutMarks{c}, nil
	}
	return c, err
}

type withoutMarks struct{ cgroups.Cgroup }

func (withoutMarks) Attributes() ([]string, error) { return nil, syscall.EIO }

// No container is created while a mark of its pod cannot be read: the mark may keep a
// former value.
func TestPodWithAnUnreadableMark(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.addPod(podA)
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.wantInPod(podA, contract.Files{"memory.min": "8192"})
	options := r.plugin.Options.Options
	options.Mount = cgroups.NewMount(unlisted{r.node.Hierarchy(), r.podDir(podA)})
	e, created := enforce.New(options), at(c, false)
	e.Add(t.Context(), created)
	_, err := e.Create(t.Context(), created, func(contract.Decision) error { return nil })
	require.ErrorContains(t, err, "its pod: cgroup "+r.podDir(podA))
}

// I1: an update keeps the CPUs of a container without a claim while no node state is known:
// the runtime would write the CPUs of the creation again, which a claim has now. The
// container of another program gets what that program asks for.
func TestUpdateWithoutANodeState(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	require.Equal(t, "0-15", r.cpus(pool))
	r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.Equal(t, "0-3,8-15", r.cpus(pool))
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.connect()
	pinned := r.pinned("pinned", podC, "8-9")
	unknown := &api.Container{Id: "unknown", Linux: &api.LinuxContainer{CgroupsPath: "../elsewhere"}}
	gone := &api.Container{Id: "gone", Linux: &api.LinuxContainer{CgroupsPath: pool.pod.Linux.CgroupParent + "/gone"}}
	for ctr, want := range map[*api.Container]string{pool.api: "0-3,8-15", pinned.api: "", unknown: "", gone: ""} {
		updates, err := r.session.UpdateContainer(t.Context(), pool.pod, ctr, &api.LinuxResources{})
		require.NoError(t, err)
		got := ""
		for _, u := range updates {
			got = u.GetLinux().GetResources().GetCpu().GetCpus()
		}
		require.Equal(t, want, got, ctr.Id)
	}
}

// A container that was started without this actuator gets its CPUs after the pool has left
// them, also after a reconnection (I1).
func TestUpdateOfAContainerWithoutAnAnswer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool, c := r.foreign("pool", podB), r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	e := enforce.New(r.plugin.Options.Options)
	for range 2 {
		e.Replace(t.Context(), []*enforce.Container{at(pool, true), at(c, true)})
	}
	r.node.SetFile(pool.dir, "cpuset.cpus", "0-15")
	d, ok, err := e.Current(t.Context(), e.Find("c"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "4-7", d.CPUs.String())
	require.Equal(t, "0-3,8-15", r.cpus(pool))
}

// Without a node state there is no last pool.
func TestNoLastPool(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	_, ok := enforce.New(r.plugin.Options.Options).LastPool(at(r.foreign("c", podA), true))
	require.False(t, ok)
}

// A container with a claim that this actuator does not know, and whose cgroup is not where
// the runtime says, has not got its values (I5). A known container without a cgroup is a
// virtual machine.
func TestStartWithoutACgroup(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, plain := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...), r.foreign("plain", podB)
	r.node.RemoveCgroup(c.dir)
	r.node.RemoveCgroup(plain.dir)
	for _, start := range []struct {
		of            *container
		known, starts bool
	}{{c, false, false}, {c, true, true}, {plain, false, true}} {
		e := enforce.New(r.plugin.Options.Options)
		e.Add(t.Context(), at(start.of, true))
		_, err := e.ApplyTo(t.Context(), e.Find(start.of.api.Id), start.known)
		require.Equal(t, start.starts, err == nil, "%s: %v", start.of.api.Id, err)
	}
}

// A container's own pod must be usable: a pod with values must exist, and what any pod names
// must be known, because its container may not get these CPUs otherwise (I5).
func TestPodThatCannotBeUsed(t *testing.T) {
	for name, c := range map[string]struct {
		files   contract.Files
		prepare func(r *runtime)
	}{
		"it needs values, and it is gone": {files: contract.Files{"memory.min": "8192"}, prepare: func(*runtime) {}},
		"it needs no values, and it cannot be read": {prepare: func(r *runtime) {
			r.addPod(podA)
			r.node.Fail(r.podDir(podA), contract.FileExclusive, syscall.EIO)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			env := r.node.Prepare(podA, claimA, quad())
			r.wantInPod(podA, c.files)
			c.prepare(r)
			pod := sandbox(podA)
			_, _, err := r.session.CreateContainer(t.Context(), pod, &api.Container{
				Id: "c", PodSandboxId: pod.Id, Name: "c", Env: env, Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"},
			})
			require.ErrorContains(t, err, "its pod: ")
		})
	}
}

// A container whose creation was answered has its room: an update waits for no value of a
// level.
func TestUpdateOfAnAnsweredContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	r.node.FailWrites("kubepods", "memory.min", syscall.EIO)
	updates, err := r.session.UpdateContainer(t.Context(), c.pod, c.api, &api.LinuxResources{})
	require.NoError(t, err)
	require.Len(t, updates, 1)
	require.Equal(t, "4-7", updates[0].GetLinux().GetResources().GetCpu().GetCpus())
}

// The debug logs say why a created container waits.
func TestWaitingContainerSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		pod, want string
		fails     bool
	}{
		"its claim is another pod's":           {pod: podC, want: "is not prepared for this pod"},
		"a container of the pool cannot leave": {pod: podA, want: "could not be moved off claimed CPUs", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			pool := r.run("pool", podB)
			waits := r.foreign("waits", c.pod, r.node.Prepare(podA, claimA, quad())...)
			if c.fails {
				r.node.FailWrites(pool.dir, "cpuset.cpus", syscall.EIO)
			}
			e := enforce.New(r.plugin.Options.Options)
			e.Replace(t.Context(), []*enforce.Container{at(pool, true), at(waits, false)})
			ctx, kept := observed(t)
			require.True(t, e.ApplyWaiting(ctx))
			said := kept.FilterMessage("created container waits").All()
			require.Len(t, said, 1)
			require.Contains(t, said[0].ContextMap()["error"], c.want)
			require.Empty(t, r.cpus(waits))
		})
	}
}

// The generation of the metric is the one that was applied everywhere, as the announced one.
func TestGenerationThatIsNotAppliedEverywhere(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podB)
	require.NoError(t, r.plugin.Apply(t.Context()))
	before := r.metric("cpumem_actuator_node_generation")
	back := r.node.FailWrites(c.dir, "cpuset.cpus", syscall.EIO)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	require.Error(t, r.plugin.Apply(t.Context()))
	require.Equal(t, before, r.metric("cpumem_actuator_node_generation"))
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, before+1, r.metric("cpumem_actuator_node_generation"))
}

// Kubelet releases a claim when its containers have ended, and the runtime may report that later: this is no refusal. A
// variable that never was valid is one.
func TestReleasedClaimIsNotRefused(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-15", r.cpus(c), "it belongs to the shared pool")
	other := r.run("other", podB, r.node.Prepare(podB, claimB, quad())...)
	r.node.Change(func(s *contract.NodeState) { delete(s.Pods, podB) })
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NotEqual(t, "4-7", r.cpus(other), "its pod has the claim no more")
	require.Zero(t, r.metric("cpumem_actuator_refused_total"))
	r.connect()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.EqualValues(t, 1, r.metric("cpumem_actuator_refused_total", "unbacked"), "nothing shows that it was valid")
}

// A container that another program pins to unmanaged CPUs is no longer looked at. It is forgotten when its cgroup is gone.
func TestPinnedContainerThatIsGone(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA)
	known := at(c, true)
	known.Pinned = contracttest.CPUs("15")
	e := enforce.New(r.plugin.Options.Options)
	e.Replace(t.Context(), []*enforce.Container{known})
	for range 2 { // the second looks at files that are open
		_, err := e.ApplyAll(t.Context())
		require.NoError(t, err)
	}
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.UnmanagedCPUs, s.Shared.CPUs = contracttest.CPUs("15"), contracttest.CPUs("0-14")
	})
	r.node.SetFile(c.dir, "cpuset.cpus", "15")
	_, err := e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.Equal(t, "15", r.cpus(c))
	r.node.RemoveCgroup(c.dir)
	_, err = e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.Nil(t, e.Find(c.api.Id))
}
