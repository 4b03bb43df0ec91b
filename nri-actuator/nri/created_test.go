// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
)

// I5: a container that was created without the actuator, and whose cpuset is the
// decision's already, gets the decision's memory. An error is in the debug logs.
func TestCreatedWhileAwayOnItsCPUs(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	c := r.foreign("c", podA, r.node.Prepare(podA, claimA, quad())...)
	c.running, c.api.State = false, api.ContainerState_CONTAINER_CREATED
	r.node.SetFile(c.dir, "cpuset.cpus", "4-7")
	back := r.replaceByDir(c, "memory.min")
	r.connect()
	ctx, kept := observed(t)
	require.NoError(t, r.plugin.Apply(ctx))
	said := kept.FilterMessage("created container waits").All()
	require.Len(t, said, 1)
	require.Contains(t, said[0].ContextMap()["error"], "memory.min")

	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "1073741824", r.node.File(c.dir, "memory.min"))
}

// A created container waits for its decision if the runtime lists its pod. Otherwise the
// container stays as it is, and nothing looks at it again and again.
func TestUnlistedContainerDoesNotWait(t *testing.T) {
	for _, unlisted := range []bool{false, true} {
		r := newRuntime(t, t.TempDir())
		env := r.node.Prepare(podA, claimA, quad())
		e := enforce.New(r.plugin.Options.Options)
		e.Replace(t.Context(), []*enforce.Container{{
			ID: "c", References: claims.Container{PodUID: podA}.WithEnv(env), Life: enforce.Life{PodUnlisted: unlisted},
		}})
		require.Equal(t, !unlisted, e.ApplyWaiting(t.Context()))
	}
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
// is only if its cpuset is within the pod's CPUs. An empty cpuset means all CPUs.
func TestAdoptedInAPodWithAClaim(t *testing.T) {
	for found, want := range map[string]string{"4-5": "4-5", "0-4": "0-4", "": "0-3,9-15", "4-8": "0-3,9-15"} {
		r := newRuntime(t, t.TempDir())
		r.run("claimed", podA, r.node.Prepare(podA, claimA, quad())...)
		r.run("other", podB, r.node.Prepare(podB, claimB, contract.Decision{CPUs: contract.CPUs(8)})...)
		r.plugin.Disconnected(t.Context(), "gone")
		c := r.foreign("c", podA)
		r.node.SetFile(c.dir, "cpuset.cpus", found)
		require.NoError(t, r.plugin.Refresh(t.Context()))
		require.Equal(t, want, r.cpus(c), "found on %q", found)
	}
}

// A cgroup below kubepods that is no pod's is another program's: nothing in it fails an
// Apply.
func TestOtherCgroupsBelowKubepods(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("c", podA, r.node.Prepare(podA, claimA, quad())...)
	const dir = "kubepods/burstable/other"
	r.node.AddCgroup(dir)
	r.replaceByDir(&container{dir: dir}, contract.FileExclusive)
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
