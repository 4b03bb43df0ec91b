// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// wantInPod gives the pod these files in the node state.
func (r *runtime) wantInPod(uid string, files contract.Files) {
	r.node.Change(func(s *contract.NodeState) {
		pod := s.Pods[uid]
		pod.Cgroup = files
		s.Pods[uid] = pod
	})
}

// A pod keeps its values while its claim is prepared and none of its containers exists:
// its next container may be about to start.
func TestPodKeepsItsValuesWithoutAContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	env := r.node.Prepare(podA, claimA, quad())
	r.wantInPod(podA, contract.Files{"memory.min": "8192"})
	c := r.run("c", podA, env...)
	require.NoError(t, r.remove(c))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "8192", r.node.File(r.podDir(podA), "memory.min"))
	r.node.Unprepare(podA, claimA, "4-7")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0", r.node.File(r.podDir(podA), "memory.min"))
}

// Drop forgets the container that was not created, and no other container with its ID.
func TestDrop(t *testing.T) {
	e := enforce.New(newRuntime(t, t.TempDir()).plugin.Options.Options)
	c, other := &enforce.Container{ID: "c"}, &enforce.Container{ID: "c"}
	e.Add(t.Context(), c)
	e.Drop(other)
	require.Same(t, c, e.Find("c"))
	e.Drop(c)
	require.Nil(t, e.Find("c"))
	require.False(t, e.HasContainers())
}

// A pod with values, or with partition CPUs, needs them: its cgroup must be known.
func TestPodThatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		decision contract.Decision
		files    contract.Files
	}{
		"partition": {partitioned("4-7", contract.PartitionRoot), nil},
		"memory":    {quad(), contract.Files{"memory.min": "8192"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			r.run("other", podB)
			env := r.node.Prepare(podA, claimA, c.decision)
			r.wantInPod(podA, c.files)
			pod := sandbox(podA)
			pod.Linux.CgroupParent = "../elsewhere"
			_, _, err := r.session.CreateContainer(t.Context(), pod, &api.Container{
				Id: "c", PodSandboxId: pod.Id, Name: "c", Env: env, Linux: &api.LinuxContainer{CgroupsPath: "/" + r.podDir(podA) + "/c"},
			})
			require.ErrorContains(t, err, "its pod: ")
		})
	}
}

// Without a node state there is no pool: a container without a claim is created as it
// is, and no later call takes it for a container of the pool.
func TestCreatedWithoutANodeState(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.connect()
	pod := sandbox(podA)
	a, _, err := r.session.CreateContainer(t.Context(), pod, &api.Container{
		Id: "c", PodSandboxId: pod.Id, Name: "c", Linux: &api.LinuxContainer{CgroupsPath: pod.Linux.CgroupParent + "/c"},
	})
	require.NoError(t, err)
	require.Nil(t, a)
	updates, err := r.session.UpdateContainer(t.Context(), pod, &api.Container{Id: "other", Name: "other"}, &api.LinuxResources{})
	require.NoError(t, err)
	require.Empty(t, updates)
}

// Without a node state nothing shows what a claim's container must have (I5).
func TestClaimWithoutANodeState(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	r.connect()
	require.ErrorContains(t, r.session.StartContainer(t.Context(), c.pod, c.api), contract.NodeFile)
	_, err = r.session.UpdateContainer(t.Context(), c.pod, c.api, &api.LinuxResources{})
	require.ErrorContains(t, err, contract.NodeFile)
}

// A created container whose values another program has changed gets them again before it
// starts: its guard waits for them.
func TestCreatedContainerIsRepaired(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c, err := r.create("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, err)
	r.node.AddCgroup(c.dir)
	r.node.SetFile(c.dir, "cpuset.cpus", "0")
	require.NoError(t, r.plugin.CatchUp(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
}

// A claim without CPUs takes nothing out of the pool: it does not wait for a pool
// container that cannot be moved.
func TestMemoryClaimWaitsForNoPoolContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-3") })
	r.node.Fail(pool.dir, "cpuset.cpus", syscall.EIO)
	env := r.node.Prepare(podA, claimA, contract.Decision{Mems: contracttest.NUMANodes("0")})
	_, err := r.create("c", podA, env...)
	require.NoError(t, err)
}

// ApplyAll returns an error if the cgroup of a container, or of a level with values, is
// not known.
func TestPlacesThatAreNotKnown(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	unknown := errors.New("unknown place")
	for name, c := range map[string]struct {
		change func(*enforce.Container)
		want   string
	}{
		"container": {func(c *enforce.Container) { c.Cgroups.Dir, c.Cgroups.DirErr = "", unknown }, "unknown place"},
		"levels": {
			func(c *enforce.Container) { c.Cgroups.Pod, c.Cgroups.PodErr = "", unknown },
			"the values of the QoS levels cannot be written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.node.Change(func(s *contract.NodeState) {
				s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}}
				s.PartitionCPUs = map[string]contract.CPUSet{"": contracttest.CPUs("4-7")}
			})
			r.node.AddCgroup(r.podDir(podB) + "/c")
			e := enforce.New(r.plugin.Options.Options)
			container := &enforce.Container{
				ID: "c", References: claims.Container{PodUID: podB}, Life: enforce.Life{Started: true},
				Cgroups: enforce.Cgroups{Dir: r.podDir(podB) + "/c", Pod: r.podDir(podB)},
			}
			c.change(container)
			e.Add(t.Context(), container)
			_, err := e.ApplyAll(t.Context())
			require.ErrorContains(t, err, c.want)
		})
	}
}

// One line of the log reports that a decision is kept, not a line at each refresh.
func TestKeptDecisionIsLoggedOnce(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	file, err := os.ReadFile(filepath.Join(r.node.CDI, contract.ClaimFile(claimA)))
	require.NoError(t, err)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	ctx, kept := observed(t)
	for range 3 {
		_ = r.plugin.Apply(ctx)
	}
	said := func() int { return kept.FilterMessage("keeping the last known decision").Len() }
	require.Equal(t, 1, said())
	require.Equal(t, "4-7", r.cpus(c))

	r.node.WriteFile(contract.ClaimFile(claimA), file)
	require.NoError(t, r.plugin.Apply(ctx))
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	_ = r.plugin.Apply(ctx)
	require.Equal(t, 2, said(), "a new fault")
}

// The last known decision of a container is kept over a reconnection: it is repaired while
// the claim file cannot be read.
func TestKeptDecisionIsRepaired(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	r.reconnect()
	r.node.SetFile(c.dir, "cpuset.cpus", "4")
	_ = r.plugin.Apply(t.Context())
	require.Equal(t, "4-7", r.cpus(c))
}

// The actuator gives a former value back when it looks at all cgroups, not at the start
// of a container.
func TestStartGivesNothingBack(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("other", podB)
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{} })
	r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	require.Equal(t, "4096", r.node.File("kubepods", "memory.min"))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0", r.node.File("kubepods", "memory.min"))
}

// A container that another program has pinned keeps its CPUs when the answer to an update
// of the container comes late.
func TestLateUpdateOfAPinnedContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pool := r.run("pool", podB)
	r.node.Change(func(s *contract.NodeState) {
		s.Shared.CPUs, s.Shared.UnmanagedCPUs = contracttest.CPUs("0-11"), contracttest.CPUs("12-15")
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	pod := sandbox(podC)
	pinned := &api.Container{
		Id: "pinned", PodSandboxId: pod.Id, Name: "pinned",
		Linux: &api.LinuxContainer{
			CgroupsPath: pod.Linux.CgroupParent + "/pinned",
			Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "12-13"}},
		},
	}
	env := r.node.Prepare(podA, claimA, quad())
	r.addPod(podA)
	free := r.node.Block(pool.dir, "cpuset.cpus")
	claimed := sandbox(podA)
	_, _, err := r.session.CreateContainer(soon(t), claimed, &api.Container{
		Id: "c", PodSandboxId: claimed.Id, Name: "c", Env: env, Linux: &api.LinuxContainer{CgroupsPath: claimed.Linux.CgroupParent + "/c"},
	})
	require.ErrorContains(t, err, "busy")
	updates, err := r.session.UpdateContainer(soon(t), pod, pinned, &api.LinuxResources{})
	require.NoError(t, err)
	require.Empty(t, updates)
	free()
}

// The actuator's own container gets its values through its pod, after a reconnection as
// well. The container's own files keep old values.
func TestOwnContainerAfterAReconnection(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	dir, pod := r.podDir(podB)+"/own", r.podDir(podB)
	r.node.AddCgroup(dir)
	r.node.SetFile(dir, "cpuset.cpus", "0-3")
	r.node.SetFile(dir, "cpuset.mems", "0")
	options := r.plugin.Options.Options
	options.Mount = r.node.MountIn(dir)
	e := enforce.New(options)
	for _, want := range []contract.Shared{
		{CPUs: contracttest.CPUs("0-3"), Mems: contracttest.NUMANodes("0")},
		{CPUs: contracttest.CPUs("0-7"), Mems: contracttest.NUMANodes("0-1")},
		{CPUs: contracttest.CPUs("0-3"), Mems: contracttest.NUMANodes("0")},
	} {
		e.Replace(t.Context(), []*enforce.Container{{
			ID: "own", Name: "ns/own", References: claims.Container{PodUID: podB},
			Cgroups: enforce.Cgroups{Dir: dir, Pod: pod}, Life: enforce.Life{Started: true},
		}})
		r.node.Change(func(s *contract.NodeState) { s.Shared = want })
		_, err := e.ApplyAll(t.Context())
		require.NoError(t, err)
		require.True(t, contracttest.CPUs(r.node.File(dir, "cpuset.cpus.effective")).IsSubsetOf(want.CPUs), want)
		require.True(t, contracttest.NUMANodes(r.node.File(dir, "cpuset.mems.effective")).IsSubsetOf(want.Mems), want)
		for file, wanted := range map[string]string{"cpuset.cpus": want.CPUs.String(), "cpuset.mems": want.Mems.String()} {
			if has := r.node.File(pod, file); has != "" {
				require.Equal(t, wanted, has)
			}
		}
	}
}

// The start of a container writes no other container of the pool: the next refresh does.
func TestStartWritesNoOtherContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	other := r.run("other", podB)
	require.Equal(t, "0-15", r.cpus(other))
	r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-7") })
	c := r.run("c", podC)
	require.Equal(t, "0-7", r.cpus(c))
	require.Equal(t, "0-15", r.cpus(other))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-7", r.cpus(other))
}
