// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// TestPodsAndAncestors checks that the pod, its QoS level and kubepods have
// their values before the container exists. The values follow the node state,
// and drift is repaired.
func TestPodsAndAncestors(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	pages := r.podDir(podA)
	env := r.node.Prepare(podA, claimA, quad())
	r.node.Change(func(s *contract.NodeState) {
		s.Pods[podA] = contract.PodState{Claims: []string{claimA}, Cgroup: contract.Files{
			"memory.min": "1073741824", "hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304"}}
		s.Ancestors = map[string]contract.Files{
			"":           {"memory.min": "1073741824"},
			"burstable":  {"memory.min": "1073741824"},
			"besteffort": {},
		}
	})
	_, err := r.create("c", podA, env...)
	require.NoError(t, err)
	require.Equal(t, "4194304", r.node.File(pages, "hugetlb.2MB.rsvd.max"))
	require.Equal(t, "1073741824", r.node.File(pages, "memory.min"))
	require.Equal(t, "1073741824", r.node.File("kubepods", "memory.min"))
	require.Equal(t, "1073741824", r.node.File("kubepods/burstable", "memory.min"))
	require.Equal(t, "0", r.node.File("kubepods/besteffort", "memory.min"))
	require.Zero(t, r.metric("cpumem_actuator_repaired_total"))

	// A44: kubelet writes its zeros again and again.
	for range 2 {
		r.node.SetFile("kubepods", "memory.min", "0")
		require.NoError(t, r.plugin.Apply(t.Context()))
		require.Equal(t, "1073741824", r.node.File("kubepods", "memory.min"), "kubelet's zero is repaired")
	}
	require.EqualValues(t, 2, r.metric("cpumem_actuator_repaired_total", "memory.min"))
	require.Equal(t, "kubepods", r.announced.Kubepods)
	require.Equal(t, map[string]contract.Files{"": {"memory.min": "0"}}, r.announced.Overwritten)
	r.node.SetFile(pages, "hugetlb.2MB.max", "0")
	r.later(9 * time.Minute)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, map[string]contract.Files{"": {"memory.min": "0"}, podA: {"hugetlb.2MB.max": "0"}}, r.announced.Overwritten)
	r.later(2 * time.Minute)
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, map[string]contract.Files{podA: {"hugetlb.2MB.max": "0"}}, r.announced.Overwritten, "it has stopped")

	r.node.RemoveCgroup("kubepods/besteffort")
	r.node.Change(func(s *contract.NodeState) {
		s.Ancestors = map[string]contract.Files{
			"":           {"memory.min": "4096"},
			"burstable":  {"memory.min": "4096"},
			"besteffort": {"memory.low": "4096"},
		}
	})
	require.NoError(t, r.plugin.Apply(t.Context()), "a level without pods need not exist")
	require.Equal(t, "4096", r.node.File("kubepods/burstable", "memory.min"))
	require.EqualValues(t, 3, r.metric("cpumem_actuator_repaired_total"))

	require.NotEmpty(t, r.announced.Overwritten)
	r.node.Change(func(s *contract.NodeState) {
		s.Ancestors = nil
		s.Pods[podA] = contract.PodState{Claims: []string{claimA}}
	})
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Empty(t, r.announced.Overwritten, "others may write what is theirs")
}

// A46: former values of pods and QoS levels come back, also from an actuator
// that did not overwrite them (I4).
func TestFormerValuesComeBack(t *testing.T) {
	for name, between := range map[string]func(*runtime){
		"same actuator":    func(*runtime) {},
		"another actuator": (*runtime).connect,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, t.TempDir())
			pod := r.podDir(podA)
			r.run("pooled", podA)
			r.node.SetFile(pod, "hugetlb.2MB.max", "0")
			r.node.SetFile("kubepods", "memory.min", "12288")
			env := r.node.Prepare(podA, claimA, quad())
			r.node.Change(func(s *contract.NodeState) {
				s.Pods[podA] = contract.PodState{
					Claims: []string{claimA},
					Cgroup: contract.Files{"memory.min": "8192", "hugetlb.2MB.max": "4194304"},
				}
				s.Ancestors = map[string]contract.Files{"": {"memory.min": "8192"}, "burstable": {"memory.min": "8192"}}
			})
			r.run("c", podA, env...)
			require.Equal(t, "8192", r.node.File("kubepods", "memory.min"))
			between(r)
			r.node.Change(func(s *contract.NodeState) {
				s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}, "burstable": {"memory.min": "4096"}}
			})
			require.NoError(t, r.plugin.Apply(t.Context()))
			between(r)
			require.NoError(t, r.remove(r.containers["c"]))
			r.node.Unprepare(podA, claimA, quad().CPUs.String())
			r.node.Change(func(s *contract.NodeState) { s.Ancestors = nil })
			require.NoError(t, r.plugin.Apply(t.Context()))
			require.Equal(t, "12288", r.node.File("kubepods", "memory.min"))
			require.Equal(t, "0", r.node.File("kubepods/burstable", "memory.min"))
			require.Equal(t, "0", r.node.File(pod, "memory.min"))
			require.Equal(t, "0", r.node.File(pod, "hugetlb.2MB.max"))
			require.Zero(t, r.metric("cpumem_actuator_repaired_total"))
			require.Empty(t, r.announced.Overwritten)
		})
	}
}

// A former value that could not be written is given back at the next Apply (I4).
func TestFormerValueIsTriedAgain(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	r.run("pooled", podA)
	r.node.SetFile("kubepods", "memory.min", "12288")
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = map[string]contract.Files{"": {"memory.min": "8192"}} })
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "8192", r.node.File("kubepods", "memory.min"))
	r.node.Change(func(s *contract.NodeState) { s.Ancestors = nil })
	back := r.node.FailWrites("kubepods", "memory.min", syscall.EIO)
	require.ErrorIs(t, r.plugin.Apply(t.Context()), syscall.EIO)
	back()
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Equal(t, "12288", r.node.File("kubepods", "memory.min"))
}

// TestDevices checks the CDI devices, which containerd names since 2.3.
func TestDevices(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	_, err := r.session.Configure(context.Background(), "", "containerd", "v2.3.7")
	require.NoError(t, err)
	env := r.node.Prepare(podA, claimA, quad())
	_, err = r.create("c", podA, env...)
	require.ErrorContains(t, err, "did not ask for the CDI device")
	c := &api.Container{Id: "d", Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/d"},
		CDIDevices: []*api.CDIDevice{{Name: contract.Key{ClaimUID: claimA}.CDIDevice()}}}
	_, _, err = r.session.CreateContainer(t.Context(), sandbox(podA), c)
	require.ErrorContains(t, err, "did not inject")
	c.Env = env
	_, _, err = r.session.CreateContainer(t.Context(), sandbox(podA), c)
	require.NoError(t, err)
}

// What the announcement names has an end: too large an announcement could not be written, and the frontend would go by the
// former one.
func TestOverwrittenIsBounded(t *testing.T) {
	r := newRuntime(t, t.TempDir())
	const pods = 120
	r.node.Change(func(s *contract.NodeState) {
		s.Ancestors = map[string]contract.Files{"burstable": {"memory.min": "8192"}}
		s.Pods = make(map[string]contract.PodState)
		for i := range pods {
			s.Pods[testnode.UID(1000+i)] = contract.PodState{Claims: []string{claimA}, Cgroup: contract.Files{"memory.min": "8192"}}
		}
	})
	for i := range pods {
		r.run(strconv.Itoa(i), testnode.UID(1000+i))
	}
	require.NoError(t, r.plugin.Apply(t.Context()))
	r.node.SetFile("kubepods/burstable", "memory.min", "0")
	for i := range pods {
		r.node.SetFile(r.podDir(testnode.UID(1000+i)), "memory.min", "0")
	}
	require.NoError(t, r.plugin.Apply(t.Context()))
	require.Len(t, r.announced.Overwritten, 100)
	require.Contains(t, r.announced.Overwritten, testnode.UID(1000))
	require.Contains(t, r.announced.Overwritten, "burstable", "levels come first")
}
