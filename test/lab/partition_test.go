// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

func partitionNode(t *testing.T) *lab.Node {
	t.Helper()
	return lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Partitions: true})
}

// ownPod makes a pod with two containers. The first has a claim from a template, of
// 2 CPUs in zone numa-1.
func ownPod(n *lab.Node, name, parameters string) *lab.Pod {
	claim := n.TemplateClaim(name, name, lab.Request{Name: "r", Zone: "numa-1", Capacity: cpu("2"), Parameters: parameters})
	return n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}}, lab.ContainerSpec{Name: "beside"})
}

// exclusive returns the partition CPUs of kubepods, the pod's level and the pod.
func exclusive(n *lab.Node, p *lab.Pod) []string {
	var out []string
	for _, dir := range []string{"kubepods", "kubepods/burstable", "kubepods/burstable/pod" + p.UID} {
		out = append(out, n.ReadCgroup(dir, contract.FileExclusive))
	}
	return out
}

// I1, I3: a claim from a template becomes a partition. Only the container beside it
// in its pod moves, and the end of the pod leaves no partition CPUs.
func TestPartition(t *testing.T) {
	t.Parallel()
	n := partitionNode(t)
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	repaired := n.Metric("cpumem_actuator_repaired_total")
	p := ownPod(n, "p", isolation("isolated"))
	both := start(t, n, p)
	require.Equal(t, "2,6", both[0].CPUs())
	require.Equal(t, "isolated", both[0].ReadCgroup(contract.FilePartition))
	require.Equal(t, "0-1,3-5,7", both[1].CPUs())
	require.Equal(t, "0-7", pool.CPUs())
	require.Equal(t, []string{"2,6", "2,6", "2,6"}, exclusive(n, p))
	require.NoError(t, both[0].Update())
	n.Check()
	require.Equal(t, repaired, n.Metric("cpumem_actuator_repaired_total"), "the runtime makes it")

	require.NoError(t, n.Remove(p))
	n.Check()
	require.Equal(t, []string{"", ""}, []string{
		n.ReadCgroup("kubepods", contract.FileExclusive), n.ReadCgroup("kubepods/burstable", contract.FileExclusive),
	})
}

// I3: when its claim is released, a pod with a cgroup gives up its partition CPUs.
// The next claim's partition may have them.
func TestPartitionAfterAnother(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(n *lab.Node){
		"at once":                  func(*lab.Node) {},
		"after a frontend restart": func(n *lab.Node) { n.RestartFrontend(); n.Ready() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := partitionNode(t)
			before := ownPod(n, "before", "")
			for _, c := range start(t, n, before) {
				c.Stop()
			}
			require.NoError(t, n.Unprepare(before))
			n.API.UpdateClaim("before", func(c *resourceapi.ResourceClaim) { c.Status = resourceapi.ResourceClaimStatus{} })
			between(n)
			n.Check()
			p := ownPod(n, "p", "")
			require.Equal(t, "2,6", start(t, n, p)[0].CPUs())
			require.Equal(t, []string{"2,6", "2,6", "2,6"}, exclusive(n, p))
			require.Empty(t, n.ReadCgroup("kubepods/burstable/pod"+before.UID, contract.FileExclusive))
		})
	}
}

// I4: an actuator that loses the feature of partitions leaves running partitions
// alone, and refuses new containers of claims with a partition. Restarts of the
// frontend change nothing. New claims use the shared pool, or are refused.
func TestPartitionsOutliveTheFeature(t *testing.T) {
	t.Parallel()
	n := partitionNode(t)
	p := ownPod(n, "p", "")
	running := start(t, n, p)[0]
	// The root of a hierarchy lacks this file, so the mount is a part of one.
	part := filepath.Join(n.Cgroup, "cgroup.events")
	require.NoError(t, os.WriteFile(part, nil, 0o600))
	n.RestartActuator(true)
	n.Ready()
	n.Feature(contract.FeaturePartition, false)
	holds := func() {
		t.Helper()
		n.Check()
		require.Equal(t, "root", running.ReadCgroup(contract.FilePartition))
		require.Equal(t, []string{"2,6", "2,6", "2,6"}, exclusive(n, p))
		require.Equal(t, "0-7", n.Pool())
	}
	holds()
	n.RestartFrontend()
	n.Ready()
	holds()
	devices := p.CDIDevices("p")
	n.RestartKubelet()
	require.NoError(t, n.Prepare(p), "I8")
	require.Equal(t, devices, p.CDIDevices("p"), "I8")
	require.NoError(t, running.Update())
	holds()

	demands := ownPod(n, "demands", isolation("partition"))
	require.True(t, n.Allocate(demands))
	require.ErrorContains(t, n.Prepare(demands),
		"cpu.isolation: partition, but it cannot be a cpuset partition: nri-actuator has made no")
	require.NoError(t, n.Remove(demands))
	other := ownPod(n, "other", "")
	pooled := start(t, n, other)[0]
	require.Equal(t, "member", pooled.ReadCgroup(contract.FilePartition))
	require.Equal(t, "0-2,4-6", n.Pool())
	require.NoError(t, n.Remove(other))
	holds()

	running.Stop()
	n.RestartFrontend()
	n.Ready()
	_, err := n.CreateContainer(p, "main")
	require.ErrorContains(t, err, "its claim requires \"partition\"")
	n.Check()
	require.NoError(t, os.Remove(part))
	n.RestartActuator(false)
	n.Ready()
	running = startAllocated(t, n, p)[0]
	holds()
	require.NoError(t, n.Remove(p))
	n.Check()
}

// I5: the partition is read back before the container's program runs, even if the
// runtime does not check it.
func TestPartitionIsReadBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, err string }{
		"refused when it was made": {`echo "root invalid (Cpu list in cpuset.cpus not exclusive)" >%q`, ""},
		"not made by the runtime":  {`echo member >%q`, ""},
		"no file":                  {`rm %q`, contract.FilePartition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := partitionNode(t)
			p := ownPod(n, "p", "")
			require.True(t, n.Allocate(p))
			require.NoError(t, n.Prepare(p))
			ctr, err := n.CreateContainer(p, "main")
			require.NoError(t, err)
			n.Check()
			file := filepath.Join(n.Cgroup, "kubepods/burstable/pod"+p.UID, ctr.ID, contract.FilePartition)
			// A hook runs between the making of the cgroup and the program.
			ctr.Spec.Hooks.CreateRuntime = append(ctr.Spec.Hooks.CreateRuntime,
				specs.Hook{Path: "/bin/sh", Args: []string{"sh", "-c", fmt.Sprintf(c.command, file)}})
			err = ctr.Start()
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				n.Check()
				return
			}
			require.NoError(t, err)
			require.Equal(t, "root", ctr.ReadCgroup(contract.FilePartition))
			n.Check()
		})
	}
}

// I1: an actuator makes a lost partition of a running container again.
func TestPartitionIsMadeAgain(t *testing.T) {
	t.Parallel()
	n := partitionNode(t)
	p := ownPod(n, "p", "")
	c := start(t, n, p)[0]
	for name, lose := range map[string]func(){
		"ended": func() { c.SetCgroup(contract.FilePartition, "member") },
		"without its CPUs": func() {
			c.SetCgroup(contract.FileExclusive, "")
			c.SetCgroup(contract.FilePartition, "root invalid (hotplug)")
		},
		"without kubepods":  func() { n.SetCgroup("kubepods", contract.FileExclusive, "") },
		"without its pod":   func() { n.SetCgroup("kubepods/burstable/pod"+p.UID, contract.FileExclusive, "") },
		"without its level": func() { n.SetCgroup("kubepods/burstable", contract.FileExclusive, "") },
	} {
		n.StopActuator(true)
		lose()
		require.NotEqual(t, "root", c.ReadCgroup(contract.FilePartition), name)
		n.StartActuator()
		n.Ready()
		require.Equal(t, "root", c.ReadCgroup(contract.FilePartition), name)
		n.Check()
		require.Equal(t, []string{"2,6", "2,6", "2,6"}, exclusive(n, p), name)
	}
}
