// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"path"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

func partitionNode(t *testing.T) *lab.Node {
	t.Helper()
	return partitionNodeOf(t, kerneltest.Linux612)
}

func partitionNodeOf(t *testing.T, release kerneltest.Release) *lab.Node {
	t.Helper()
	return lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Kernel: release})
}

// ownPod makes a pod with two containers. The first has a claim from a template, of
// 2 CPUs in zone numa-1.
func ownPod(n *lab.Node, name, parameters string) *lab.Pod {
	claim := n.TemplateClaim(name, name, lab.Request{Name: "r", Zone: "numa-1", Capacity: cpu("2"), Parameters: parameters})
	return n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}}, lab.ContainerSpec{Name: "beside"})
}

// A kernel that can hang while it makes an isolated partition makes none; a plain partition
// is made.
func TestIsolatedNeedsLinux7(t *testing.T) {
	t.Parallel()
	n := partitionNode(t)
	refused := ownPod(n, "refused", isolation("isolated"))
	require.True(t, n.Allocate(refused))
	require.ErrorContains(t, n.Prepare(refused), "cpu.isolation: isolated, but it cannot be a cpuset partition: "+
		"the kernel is Linux 6.12.0, the feature needs Linux 7.0")
	require.Equal(t, "root", start(t, n, ownPod(n, "p", isolation("partition")))[0].ReadCgroup(contract.FilePartition))
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
	n := partitionNodeOf(t, kerneltest.Linux7)
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
	n.InterceptCgroup("", "cgroup.events", func(bool, func() error) error { return nil })
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
	n.InterceptCgroup("", "cgroup.events", nil)
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
	for name, c := range map[string]struct {
		// file and content are what a hook writes.
		file, content string
		absent        bool
		err           string
	}{
		"refused when it was made": {file: contract.FileExclusive, content: "7"},
		"not made by the runtime":  {file: contract.FilePartition, content: "member"},
		"no file":                  {absent: true, err: contract.FilePartition},
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
			dir := path.Join("kubepods/burstable/pod"+p.UID, ctr.ID)
			if c.absent {
				n.InterceptCgroup(dir, contract.FilePartition, func(bool, func() error) error { return syscall.ENOENT })
			} else {
				// A hook runs between the making of the cgroup and the program.
				ctr.Spec.Hooks.CreateRuntime = append(ctr.Spec.Hooks.CreateRuntime,
					specs.Hook{Path: programs.Actuator, Args: []string{"actuator", "write", path.Join(dir, c.file), c.content}})
			}
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

// I1: an actuator makes a lost partition of a running container again, and gives it back
// what it needs of the cgroups above.
func TestPartitionIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, release := range []kerneltest.Release{kerneltest.Linux612, kerneltest.Linux7} {
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			n := partitionNodeOf(t, release)
			p := ownPod(n, "p", "")
			c := start(t, n, p)[0]
			above := func(dir string) func() { return func() { n.SetCgroup(dir, contract.FileExclusive, "") } }
			for name, loss := range map[string]struct {
				lose func()
				// stays is the kernel that leaves the partition as it is.
				stays kerneltest.Release
			}{
				"ended":             {lose: func() { c.SetCgroup(contract.FilePartition, "member") }},
				"without its CPUs":  {lose: func() { c.SetCgroup(contract.FileExclusive, "") }, stays: kerneltest.Linux7},
				"without kubepods":  {lose: above("kubepods"), stays: kerneltest.Linux612},
				"without its pod":   {lose: above("kubepods/burstable/pod" + p.UID), stays: kerneltest.Linux612},
				"without its level": {lose: above("kubepods/burstable"), stays: kerneltest.Linux612},
			} {
				n.StopActuator(true)
				loss.lose()
				require.Equal(t, loss.stays == release, c.ReadCgroup(contract.FilePartition) == "root", name)
				n.StartActuator()
				n.Ready()
				require.Equal(t, "root", c.ReadCgroup(contract.FilePartition), name)
				require.Equal(t, "2,6", c.ReadCgroup("cpuset.cpus.effective"), name)
				n.Check()
				require.Equal(t, []string{"2,6", "2,6", "2,6"}, exclusive(n, p), name)
			}
		})
	}
}
