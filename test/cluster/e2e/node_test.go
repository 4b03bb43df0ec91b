// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// cgroup reads a file in the cgroup of the pod's container, or of the pod if the
// container's name is empty.
func (s suite) cgroup(t *testing.T, p *corev1.Pod, container, file string) string {
	t.Helper()
	return s.file(t, s.cgroupDir(t, p, container)+"/"+file)
}

func (s suite) cgroupDir(t *testing.T, p *corev1.Pod, container string) string {
	t.Helper()
	level := map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "", corev1.PodQOSBurstable: "burstable", corev1.PodQOSBestEffort: "besteffort",
	}[p.Status.QOSClass]
	dir := s.below(s.levelDir(level), "pod"+string(p.UID))
	if container == "" {
		return dir
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name == container {
			return s.containerDir(dir, c.ContainerID)
		}
	}
	t.Fatalf("pod %s has no container %s", p.Name, container)
	return ""
}

// containerDir returns the cgroup of the container with the ID in a pod's cgroup, dir.
func (s suite) containerDir(dir, id string) string {
	id = strings.TrimPrefix(id, "containerd://")
	if s.systemd() {
		return dir + "/cri-containerd-" + id + ".scope"
	}
	return dir + "/" + id
}

// levelDir returns the cgroup of a level: "burstable", "besteffort", or kubepods
// for an empty name.
func (s suite) levelDir(level string) string {
	dir := "/sys/fs/cgroup/kubepods"
	if s.CgroupDriver(s.node) == cluster.CgroupDriverSystemd {
		dir += ".slice"
	}
	if level == "" {
		return dir
	}
	return s.below(dir, level)
}

// below returns the cgroup of that name in dir. A systemd slice's name begins with
// the names of all slices above it.
func (s suite) below(dir, name string) string {
	if s.CgroupDriver(s.node) != cluster.CgroupDriverSystemd {
		return dir + "/" + name
	}
	stem := strings.TrimSuffix(path.Base(dir), ".slice")
	return dir + "/" + stem + "-" + strings.ReplaceAll(name, "-", "_") + ".slice"
}

func (s suite) file(t *testing.T, path string) string {
	t.Helper()
	out, err := s.NodeExec(t.Context(), s.node, "cat "+path)
	require.NoError(t, err)
	return strings.TrimSpace(out)
}

// nodeState is the part of the node state that the tests need.
type nodeState struct {
	Generation int
	Shared     struct{ CPUs, Mems string }
	Pods       map[string]struct{ Claims []string }
}

func (s suite) nodeState(t *testing.T) nodeState {
	t.Helper()
	var spec struct{ Annotations map[string]string }
	require.NoError(t, json.Unmarshal([]byte(s.file(t, "/var/run/cdi/dra.cpumem-node.json")), &spec))
	var state nodeState
	require.NoError(t, json.Unmarshal([]byte(spec.Annotations["dra.cpumem/record"]), &state))
	return state
}

// slices returns the slices of all nodes.
func (s suite) slices(t *testing.T) []resourceapi.ResourceSlice {
	t.Helper()
	list, err := s.client.ResourceV1().ResourceSlices().
		List(context.Background(), metav1.ListOptions{FieldSelector: "spec.driver=dra.cpumem"})
	require.NoError(t, err)
	return list.Items
}

// booted reports whether the node's kernel was booted with an argument that begins so.
func (s suite) booted(t *testing.T, argument string) bool {
	t.Helper()
	return slices.ContainsFunc(strings.Fields(s.file(t, "/proc/cmdline")), func(word string) bool { return strings.HasPrefix(word, argument) })
}

// slice returns the one slice of the suite's node.
func (s suite) slice(t *testing.T) resourceapi.ResourceSlice {
	t.Helper()
	var own []resourceapi.ResourceSlice
	for _, slice := range s.slices(t) {
		if *slice.Spec.NodeName == s.node {
			own = append(own, slice)
		}
	}
	require.Len(t, own, 1, "slices of %s", s.node)
	require.Equal(t, s.node, own[0].Spec.Pool.Name)
	return own[0]
}

// amounts returns the capacities of a slice as numbers, by device and capacity.
func amounts(slice resourceapi.ResourceSlice) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for _, d := range slice.Spec.Devices {
		out[d.Name] = map[string]int64{}
		for name, c := range d.Capacity {
			out[d.Name][string(name)] = c.Value.Value()
		}
	}
	return out
}
