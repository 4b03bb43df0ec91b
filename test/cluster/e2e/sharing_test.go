// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// beside adds a second container like the first.
func beside(p *corev1.Pod) *corev1.Pod {
	second := *p.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	p.Spec.Containers = append(p.Spec.Containers, second)
	return p
}

// A20: all containers of all pods that name a claim share its CPUs. Memory is not
// shared, except with an init container, which has ended before.
func TestA20_SharedClaims(t *testing.T) {
	longOnly(t)
	s := theSuite
	mask := []string{"mask", "sleep"}

	// The frontend is stopped until both pods are scheduled, so that it prepares
	// the claim for two pods.
	frontend := func(ctx context.Context, signal string) error {
		_, err := s.NodeExec(ctx, s.node, "kill -"+signal+" $(pidof dra-frontend)")
		return err
	}
	require.NoError(t, frontend(t.Context(), "STOP"))
	goOn := func() { _ = frontend(context.Background(), "CONT") }
	t.Cleanup(goOn)
	s.claim(t, "a20-cpu", "numa-1", capacity{"cpu": "2"})
	s.create(t, beside(pod("a20-one", mask, "a20-cpu")))
	s.create(t, pod("a20-two", mask, "a20-cpu"))
	eventually(t, "claim reserved for both pods", func(ctx context.Context) error {
		c, err := s.client.ResourceV1().ResourceClaims("default").Get(ctx, "a20-cpu", getOptions)
		if err == nil && len(c.Status.ReservedFor) != 2 {
			err = fmt.Errorf("reserved for %+v", c.Status.ReservedFor)
		}
		return err
	})
	goOn()
	s.running(t, "a20-one")
	s.running(t, "a20-two")
	shared := s.lines(t, "a20-one", "mask")["mask"].CPUs
	require.Equal(t, 2, cpus(t, shared).Size())
	require.Equal(t, shared, s.linesOf(t, "a20-one", "second", "mask")["mask"].CPUs)
	require.Equal(t, shared, s.lines(t, "a20-two", "mask")["mask"].CPUs)
	s.run(t, pod("a20-late", mask, "a20-cpu"))
	require.Equal(t, shared, s.lines(t, "a20-late", "mask")["mask"].CPUs, "a pod that comes later")
	require.True(t, cpus(t, s.nodeState(t).Shared.CPUs).Intersection(cpus(t, shared)).IsEmpty())

	s.claim(t, "a20-memory", "", capacity{"memory": "32Mi"})
	s.create(t, beside(pod("a20-refused", mask, "a20-memory")))
	s.claim(t, "a20-init", "numa-1", capacity{"cpu": "1", "memory": "32Mi"})
	p := beside(pod("a20-init", []string{"view", "sleep"}, "a20-init"))
	p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers[1:], p.Spec.Containers[:1]
	p.Spec.InitContainers[0].Name, p.Spec.InitContainers[0].Args = "init", []string{"view"}
	p = s.run(t, p)
	s.refused(t, "a20-refused", "memory and hugepages cannot be shared", "a20-refused/main", "a20-refused/second")
	require.Equal(t, "33554432", s.cgroup(t, p, "main", "memory.max"))
	before, now := s.linesOf(t, "a20-init", "init", "view")["view"], s.lines(t, "a20-init", "view")["view"]
	require.Equal(t, now.CPUs, before.CPUs)
	require.Equal(t, "1", before.Mems)
	require.Equal(t, "1", now.Mems)
	require.Equal(t, "33554432", before.Cgroup["memory.max"])
}
