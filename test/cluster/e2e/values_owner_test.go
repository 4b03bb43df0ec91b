// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const claimed = "67108864"

// A45: kubelet protects pods and the levels by the pods' own requests, and knows no
// claims. The driver writes the containers' values and reports for each claim
// whether it is protected.
func TestA45_OwnerKubelet(t *testing.T) {
	longOnly(t)
	theSuite.configure(t, "config.memoryQoS.owner=kubelet")
	drivers(t, "a45-kubelet", func(t *testing.T, s suite, name string) {
		// Kubelet leaves its values there.
		t.Cleanup(func() { s.setMin(t, s.levelDir(""), "0") })
		s.kubelet(t, map[string]any{"featureGates": map[string]any{"MemoryQoS": true}, "memoryReservationPolicy": "TieredReservation"})
		s.claim(t, name, "numa-0", capacity{"memory": "64Mi"})
		p := pod(name, []string{"sleep"}, name)
		own := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("1")}
		p.Spec.Containers[0].Resources.Requests, p.Spec.Containers[0].Resources.Limits = own, own
		s.create(t, p)
		s.claim(t, name+"-claim-only", "numa-0", capacity{"memory": "64Mi"})
		s.create(t, pod(name+"-claim-only", []string{"sleep"}, name+"-claim-only"))

		p = s.running(t, name)
		require.Equal(t, claimed, s.cgroup(t, p, "main", "memory.min"), "by the driver")
		require.Equal(t, claimed, s.cgroup(t, p, "", "memory.min"), "by kubelet")
		claimOnly := s.running(t, name+"-claim-only")
		require.Equal(t, claimed, s.cgroup(t, claimOnly, "main", "memory.min"), "by the driver")
		require.Equal(t, "0", s.cgroup(t, claimOnly, "", "memory.min"), "kubelet knows of no request")
		s.protection(t, name+"-claim-only", metav1.ConditionFalse, "AncestorUnprotected")
		s.remove(t, name+"-claim-only")
		s.protection(t, name, metav1.ConditionTrue, "Protected")
	})
}

// A45: without an owner nothing is protected; limits hold all the same.
func TestA45_OwnerNone(t *testing.T) {
	longOnly(t)
	theSuite.configure(t, "config.memoryQoS.owner=none")
	drivers(t, "a45-none", func(t *testing.T, s suite, name string) {
		s.claim(t, name, "numa-0", capacity{"memory": "64Mi", "hugepages_2Mi": "4Mi"})
		p := s.run(t, pod(name, []string{"hugepages", "2Mi", "3", "sleep"}, name))
		require.Equal(t, 2, s.lines(t, name, "hugepages")["hugepages"].Got)
		for file, want := range map[string]string{
			"memory.max": claimed, "memory.min": "0", "memory.low": "0", "memory.high": "max", "cpuset.mems": "0",
		} {
			require.Equal(t, want, s.cgroup(t, p, "main", file), "container %s", file)
		}
		for _, dir := range []string{s.cgroupDir(t, p, ""), s.levelDir("besteffort"), s.levelDir("")} {
			require.Equal(t, "0", s.file(t, dir+"/memory.min"), dir)
		}
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(t.Context(), name, getOptions)
		require.NoError(t, err)
		require.Nil(t, meta.FindStatusCondition(c.Status.Devices[0].Conditions, "MemoryProtectionEffective"),
			"nothing is protected, nothing is said")
	})
}
