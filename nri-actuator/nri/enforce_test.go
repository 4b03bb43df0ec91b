// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// I5: a container that was created without the actuator, and whose cpuset is the
// decision's already, gets the decision's memory. The log has once why it waits: the guard's message names the log.
func TestCreatedWhileAwayOnItsCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	r.node.SetFile(c.dir, "cpuset.cpus", "4-7")
	back := r.node.Fail(c.dir, "memory.min", syscall.EIO)
	r.connect()
	back()
	back = r.node.Fail(c.dir, "memory.min", syscall.EBUSY)
	ctx, kept := observed(t)
	for range 2 {
		require.NoError(t, r.plugin.Apply(ctx))
	}
	said := kept.FilterMessage("created container waits").All()
	require.Len(t, said, 1)
	require.Equal(t, zapcore.WarnLevel, said[0].Level)
	require.Contains(t, said[0].ContextMap()["error"], "memory.min")

	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
}

// A created container with a claim waits for its decision if the runtime lists its pod.
// Nothing looks at other containers again and again.
func TestWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		claim bool
		life  enforce.Life
		want  bool
	}{
		"created":                     {claim: true, want: true},
		"created without a claim":     {},
		"started":                     {claim: true, life: enforce.Life{Started: true}},
		"created, its pod not listed": {claim: true, life: enforce.Life{PodUnlisted: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			env := r.node.Prepare(podA, claimA, quad())
			e := enforce.New(r.plugin.Options.Options)
			ctr := &enforce.Container{ID: "c", References: claims.Container{PodUID: podA}, Life: c.life}
			if c.claim {
				ctr.References = ctr.References.WithEnv(env)
			}
			e.Replace(t.Context(), []*enforce.Container{ctr})
			require.Equal(t, c.want, e.ApplyWaiting(t.Context()))
			require.False(t, e.HasCgroup(ctr), "its cgroup is not known")
		})
	}
}

// I1: a container that was created without the actuator, and whose claim file cannot be
// read, leaves CPUs that may be another claim's. Its program does not run yet.
func TestUnreadableClaimOfACreatedContainer(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	r.node.SetFile(c.dir, "cpuset.cpus", "4-7")
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	r.connect()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(c))
}

// Values of a pod or of levels that cannot be found are an error: the frontend must not
// take the node state for applied.
func TestUnknownPlaces(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pod := sandbox(podB)
	pod.Linux.CgroupParent = "../escape"
	_, err := r.session.Synchronize(t.Context(), []*api.PodSandbox{pod}, []*api.Container{{
		Id: "c", PodSandboxId: pod.Id, Name: "c", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: "/" + r.podDir(podB) + "/c"},
	}})
	require.NoError(t, err)
	r.node.AddCgroup(r.podDir(podB))
	r.node.AddCgroup(r.podDir(podB) + "/c")
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}} })
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "no known pod is below a kubepods cgroup")
	r.node.Prepare(podB, claimA, contract.Decision{Mems: contracttest.NUMANodes("0")})
	r.node.Change(func(s *contract.NodeState) {
		s.Ancestors = nil
		s.Pods[podB] = contract.PodState{Claims: []string{claimA}, Cgroup: contract.Files{"memory.min": "4096"}}
	})
	require.ErrorContains(t, r.plugin.Apply(t.Context()), "pod of container ns/pod-0002/c: ")
}

// A running container that the runtime first lists without its pod is running when a
// call brings its pod: what another program writes is a repair.
func TestUnlistedContainerRuns(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	pod := c.pod
	c.pod = nil
	r.connect()
	c.pod = pod
	require.NoError(t, r.update(c))
	r.node.SetFile(c.dir, "cpuset.cpus", "0-15")
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "4-7", r.cpus(c))
	require.EqualValues(t, 1, r.metric("cpumem_actuator_repaired_total", "cpuset.cpus"))
}

// I1: a container that is found without a runtime, in a pod with a claim, stays where it
// is only if its cpuset is within the pod's CPUs. An empty cpuset means all CPUs. Its other values stay (I5): it may have a
// claim without CPUs.
func TestAdoptedInAPodWithAClaim(t *testing.T) {
	for found, want := range map[string]string{"4-5": "4-5", "0-4": "0-4", "": "0-3,9-15", "4-8": "0-3,9-15"} {
		r := newRuntime(t, t.TempDir())
		r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
		r.run("other", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contract.CPUs(8)})...)
		r.plugin.Disconnected(t.Context(), "gone")
		c := r.foreign("c", podA)
		r.node.SetFile(c.dir, "cpuset.cpus", found)
		r.node.SetFile(c.dir, "cpuset.mems", "1")
		require.NoError(t, r.plugin.Refresh(t.Context()))
		require.Equal(t, want, r.cpus(c), "found on %q", found)
		require.Equal(t, "1", r.node.File(c.dir, "cpuset.mems"))
		plain := r.foreign("plain", podC)
		r.node.SetFile(plain.dir, "cpuset.mems", "1")
		require.NoError(t, r.plugin.Refresh(t.Context()))
		require.Equal(t, "0-1", r.node.File(plain.dir, "cpuset.mems"), "no claim in its pod")
	}
}

// A cgroup below kubepods that is no pod's is another program's: nothing in it fails an
// Apply.
func TestOtherCgroupsBelowKubepods(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	const dir = "kubepods/burstable/other"
	r.node.AddCgroup(dir)
	r.node.Fail(dir, contract.FileExclusive, syscall.EIO)
	require.NoError(t, r.plugin.Apply(t.Context()))
}

// A partition whose CPUs another program took away ends when its container is removed.
func TestPartitionWithoutCPUsEnds(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.SetFile(c.dir, contract.FileExclusive, "")
	require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
	require.Equal(t, "member", r.node.File(c.dir, contract.FilePartition))
}

// A container whose cgroup is gone is forgotten when a claim needs room.
func TestGoneContainerIsForgotten(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	gone, c := r.foreign("gone", podB), r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	e := enforce.New(r.plugin.Options.Options)
	at := func(c *container, env ...string) *enforce.Container {
		return &enforce.Container{
			ID: c.api.Id, References: claims.Container{PodUID: c.pod.Uid}.WithEnv(env),
			Cgroups: enforce.Cgroups{Dir: c.dir, Pod: r.podDir(c.pod.Uid)}, Life: enforce.Life{Started: len(env) == 0},
		}
	}
	e.Replace(t.Context(), []*enforce.Container{at(gone)})
	_, err := e.ApplyAll(t.Context())
	require.NoError(t, err)
	require.NotNil(t, e.Find("gone"))
	r.node.RemoveCgroup(gone.dir)
	_, err = e.Create(t.Context(), at(c, c.api.Env...), func(contract.Decision) error { return nil })
	require.NoError(t, err)
	require.Nil(t, e.Find("gone"))
}

// A creation without partitions writes to its own pod and the levels only: it takes no
// longer with more pods.
func TestCreationLeavesOtherPods(t *testing.T) {
	for _, release := range kerneltest.Releases() {
		t.Run(release.Name, func(t *testing.T) { creationLeavesOtherPods(t, newRuntimeOn(t, t.TempDir(), release)) })
	}
}

func creationLeavesOtherPods(t *testing.T, r *runtime) {
	r.run("a", podA, r.node.Prepare(podA, claimA, quad())...)
	r.node.Change(func(s *contract.NodeState) {
		s.Pods[podA] = contract.PodState{Claims: []string{claimA}, Cgroup: contract.Files{"memory.min": "8192"}}
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.SetFile(r.podDir(podA), "memory.min", "0")
	r.run("b", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contracttest.CPUs("8")})...)
	require.Equal(t, "0", r.node.File(r.podDir(podA), "memory.min"))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "8192", r.node.File(r.podDir(podA), "memory.min"))
}

// A container may run on claimed CPUs unless its cpuset shows that it does not.
func TestOnClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		cpuset string
		change func(r *runtime, c *enforce.Container)
		want   bool
	}{
		"on the pool":               {cpuset: "0-3"},
		"on a claimed CPU":          {cpuset: "0-4", want: true},
		"on all CPUs":               {cpuset: "", want: true},
		"its cgroup is not known":   {cpuset: "0-3", change: func(_ *runtime, c *enforce.Container) { c.Cgroups.Dir = "" }, want: true},
		"its cgroup is gone":        {cpuset: "0-4", change: func(r *runtime, c *enforce.Container) { r.node.RemoveCgroup(c.Cgroups.Dir) }},
		"its cpuset cannot be read": {cpuset: "0-3", change: unreadable, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			plain, claimed := r.foreign("plain", podB), r.foreign("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
			r.node.SetFile(plain.dir, "cpuset.cpus", c.cpuset)
			e := enforce.New(r.plugin.Options.Options)
			ctr := &enforce.Container{ID: "plain", Cgroups: enforce.Cgroups{Dir: plain.dir}}
			if c.change != nil {
				c.change(r, ctr)
			}
			require.False(t, e.OnClaimed(ctr), "no CPU is claimed")
			holder := &enforce.Container{ID: "claimed", References: claims.Container{PodUID: podA}.WithEnv(claimed.api.Env)}
			e.Add(t.Context(), holder)
			_, _, err := e.Current(t.Context(), holder)
			require.NoError(t, err)
			require.Equal(t, c.want, e.OnClaimed(ctr))
		})
	}
}

func unreadable(r *runtime, c *enforce.Container) {
	r.node.Fail(c.Cgroups.Dir, "cpuset.cpus", syscall.EIO)
}

// After an update, a partition that its pod left without CPUs has them again at once.
func TestPartitionAfterAnUpdate(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.SetFile(r.podDir(podA), contract.FileExclusive, "")
	require.NoError(t, r.update(c))
	require.Equal(t, contract.PartitionRoot, r.node.File(c.dir, contract.FilePartition))
	require.Equal(t, []string{"4-7", "4-7", "4-7"}, r.exclusive(podA))
}

// A decision that was withdrawn does not come back when the claim's file cannot be read.
func TestWithdrawnDecisionStaysWithdrawn(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.ClaimFile(claimA))))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(c))
	r.node.WriteFile(contract.ClaimFile(claimA), []byte("{"))
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "0-3,8-15", r.cpus(c))
}

// I1: the last known pool stands in for the node file also while a removed container's
// partition has not ended.
func TestNodeFileLostBesideAPartition(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.run("c", podA, r.node.Prepare(podA, claimA, partitioned("4-7", contract.PartitionRoot))...)
	r.node.Fail(c.dir, contract.FilePartition, syscall.EIO)
	require.NoError(t, r.session.RemoveContainer(t.Context(), c.pod, c.api))
	require.NoError(t, os.Remove(filepath.Join(r.node.CDI, contract.NodeFile)))
	plain, err := r.create("plain", podB)
	require.NoError(t, err)
	require.Equal(t, "0-15", plain.spec["cpuset.cpus"])
}

// After a change of cdiDir beside running claims, the new directory has no node file: the actuator is not ready there, so that an
// update stops. Without such claims it is ready before there is a frontend.
func TestMisplaced(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("plain", podB)
	node := filepath.Join(r.node.CDI, contract.NodeFile)
	away := func() (back func()) {
		data, err := os.ReadFile(node)
		require.NoError(t, err)
		require.NoError(t, os.Remove(node))
		return func() { r.node.WriteFile(contract.NodeFile, data) }
	}
	back := away()
	r.connect()
	require.NoError(t, r.plugin.Misplaced())
	back()
	r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
	require.NoError(t, r.plugin.Misplaced())
	back = away()
	r.connect() // another actuator
	require.ErrorContains(t, r.plugin.Misplaced(), "no node file")
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.NoError(t, r.plugin.Misplaced())
}
