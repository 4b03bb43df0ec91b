// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A76: a program maps hugepages through a file system, as DPDK does. It is not root,
// and its pod requests nothing but the claim. It gets as many hugepages as are claimed.
func TestA76_HugepagesThroughAFileSystem(t *testing.T) {
	longOnly(t)
	drivers(t, "a76", func(t *testing.T, s suite, name string) {
		asked, args := capacity{"hugepages_2Mi": "16Mi"}, []string{"hugefile", "/dev/hugepages-2Mi", "9", "sleep"}
		s.claim(t, name, "", asked)
		p := pod(name, args, name)
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
			RunAsUser: new(int64(1000)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		p = s.run(t, p)
		require.Equal(t, corev1.PodQOSBestEffort, p.Status.QOSClass)
		got := s.lines(t, name, "hugefile")["hugefile"]
		require.Equal(t, 2<<20, got.PageSize)
		require.Equal(t, 8, got.Got, "pages; stopped by %q", got.Stopped)
		_, err := s.NodeExec(t.Context(), s.node, "test ! -e /dev/hugepages-2Mi")
		require.NoError(t, err, "the mount is the container's alone")

		// The pod's own volume at the path stays. Kubelet makes the volume only
		// with a request.
		mirrored := name + "-mirrored"
		s.claim(t, mirrored, "", asked)
		p = pod(mirrored, args, mirrored)
		amounts := corev1.ResourceList{"hugepages-2Mi": resource.MustParse("16Mi"), corev1.ResourceMemory: resource.MustParse("16Mi")}
		p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits = amounts, amounts
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "pages", MountPath: "/dev/hugepages-2Mi"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "pages", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages-2Mi"},
		}}}
		s.run(t, p)
		got = s.lines(t, mirrored, "hugefile")["hugefile"]
		require.Equal(t, 8, got.Got, "pages, counted once; stopped by %q", got.Stopped)
		mounts, err := s.NodeExec(t.Context(), s.node, "cat /proc/mounts")
		require.NoError(t, err)
		require.Contains(t, mounts, "kubernetes.io~empty-dir/pages hugetlbfs")
	})
}

// A76: both page sizes in one pod. The node has a page of 1 GiB only if its kernel
// sets one aside: KERNEL_ARGS='hugepagesz=1G hugepages=1:1' make e2e.
func TestA76_BothPageSizes(t *testing.T) {
	s := theSuite
	out, err := s.NodeExec(t.Context(), s.node, "cat /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages || echo 0")
	require.NoError(t, err)
	if !s.booted(t, "hugepagesz=1G") {
		t.Skip("the node was booted without a page of 1 GiB")
	}
	require.NotEqual(t, "0", strings.TrimSpace(out), "the kernel has set no page of 1 GiB aside")
	s.claim(t, "a76-both", "", capacity{"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"})
	p := pod("a76-both", []string{"hugefile", "/dev/hugepages-2Mi", "3", "sleep"}, "a76-both")
	large := p.Spec.Containers[0]
	large.Name, large.Args = "large", []string{"hugefile", "/dev/hugepages-1Gi", "2", "exit", "0"}
	p.Spec.InitContainers = []corev1.Container{large}
	s.run(t, p)
	got := s.linesOf(t, "a76-both", "large", "hugefile")["hugefile"]
	require.Equal(t, []int{1 << 30, 1}, []int{got.PageSize, got.Got}, "size and number; stopped by %q", got.Stopped)
	got = s.lines(t, "a76-both", "hugefile")["hugefile"]
	require.Equal(t, []int{2 << 20, 2}, []int{got.PageSize, got.Got}, "size and number; stopped by %q", got.Stopped)
}
