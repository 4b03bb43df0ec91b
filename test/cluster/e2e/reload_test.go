// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// A69: a pool container is resized while a claim takes CPUs out of the pool, so
// that the runtime writes the container's cpuset. systemd then writes all its
// values of the container, which stays off the claim's CPUs.
func TestA69_ReloadAfterARuntimeUpdate(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	plain := pod("a69-plain", []string{"mask", "sleep"})
	plain.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	p := s.run(t, plain)
	before := s.cgroup(t, p, "main", "cpu.weight")
	held := cpuset.New()
	const rounds = 2
	for i := range rounds {
		name := fmt.Sprintf("a69-%d", i)
		s.claim(t, name, "", capacity{"cpu": "1"})
		s.create(t, pod(name, []string{"mask", "sleep"}, name))
		patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"%d"}}}]}}`, 2+i)
		_, err := s.client.CoreV1().Pods("default").
			Patch(t.Context(), plain.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize")
		require.NoError(t, err)
		s.running(t, name)
		held = held.Union(cpus(t, s.lines(t, name, "mask")["mask"].CPUs))
		eventually(t, "runtime's update", func(context.Context) error {
			if now := s.cgroup(t, p, "main", "cpu.weight"); now == before {
				return fmt.Errorf("cpu.weight is still %s", now)
			}
			return nil
		})
		before = s.cgroup(t, p, "main", "cpu.weight")
		for range 3 {
			s.reload(t)
			got := cpus(t, s.cgroup(t, p, "main", "cpuset.cpus.effective"))
			require.True(t, got.Intersection(held).IsEmpty(), "the pool's container may run on %s, claims have %s", got, held)
		}
	}
	require.Equal(t, rounds, held.Size())
}
