// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/kubelet/qos"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// A81: for any pod, each container has kubelet's oom_score_adj. The test is here
// because this module compiles kubelet.
func TestOOMScoreIsKubelets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mi = 1 << 20
		capacity := rapid.Int64Range(mi, 1<<42).Draw(t, "capacity")
		amount := func(most int64) oomscore.Amount {
			a := oomscore.Amount{Limit: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, most)).Draw(t, "limit")}
			// The API server sets a missing request to the limit, and refuses a larger one.
			a.Request = rapid.SampledFrom([]int64{a.Limit, a.Limit / 2}).Draw(t, "request")
			if a.Limit == 0 {
				a.Request = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, most)).Draw(t, "request alone")
			}
			return a
		}
		resources := func() oomscore.Resources { return oomscore.Resources{CPU: amount(64000), Memory: amount(2 * capacity)} }
		var p oomscore.Pod
		for range rapid.IntRange(0, 2).Draw(t, "init containers") {
			p.Containers = append(p.Containers,
				oomscore.Container{Resources: resources(), Init: true, BesideMain: rapid.Bool().Draw(t, "sidecar")})
		}
		for range rapid.IntRange(1, 3).Draw(t, "containers") {
			p.Containers = append(p.Containers, oomscore.Container{Resources: resources(), BesideMain: true})
		}
		if rapid.Bool().Draw(t, "guaranteed") {
			for i := range p.Containers {
				for _, a := range []*oomscore.Amount{&p.Containers[i].CPU, &p.Containers[i].Memory} {
					a.Limit = max(a.Request, 1)
					a.Request = a.Limit
				}
			}
		}
		if rapid.Bool().Draw(t, "whole pod") {
			whole := resources()
			// The API server refuses less than the sum of the containers.
			for _, c := range p.Containers {
				whole.Memory.Request += c.Memory.Request
			}
			if whole.Memory.Limit > 0 {
				whole.Memory.Limit = whole.Memory.Request + rapid.SampledFrom([]int64{0, mi}).Draw(t, "above")
			}
			p.Resources = &whole
		}
		pod, containers := kubeletPod(p)
		for i, c := range containers {
			require.Equal(t, qos.GetContainerOOMScoreAdjust(pod, c, capacity), p.Score(i, capacity), "container %d of %+v", i, p)
		}
	})
}

// kubeletPod returns the pod as an API object, and its containers in order.
func kubeletPod(p oomscore.Pod) (pod *corev1.Pod, containers []*corev1.Container) {
	pod = &corev1.Pod{}
	for i, c := range p.Containers {
		ctr := corev1.Container{Name: fmt.Sprint(i)}
		ctr.Resources.Requests, ctr.Resources.Limits = lists(c.Resources)
		switch {
		case !c.Init:
			pod.Spec.Containers = append(pod.Spec.Containers, ctr)
			continue
		case c.BesideMain:
			ctr.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, ctr)
	}
	if p.Resources != nil {
		pod.Spec.Resources = &corev1.ResourceRequirements{}
		pod.Spec.Resources.Requests, pod.Spec.Resources.Limits = lists(*p.Resources)
	}
	for i := range pod.Spec.InitContainers {
		containers = append(containers, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		containers = append(containers, &pod.Spec.Containers[i])
	}
	return pod, containers
}

func lists(r oomscore.Resources) (requests, limits corev1.ResourceList) {
	requests, limits = corev1.ResourceList{}, corev1.ResourceList{}
	set := func(list corev1.ResourceList, name corev1.ResourceName, q *resource.Quantity) {
		if !q.IsZero() {
			list[name] = *q
		}
	}
	set(requests, corev1.ResourceCPU, resource.NewMilliQuantity(r.CPU.Request, resource.DecimalSI))
	set(requests, corev1.ResourceMemory, resource.NewQuantity(r.Memory.Request, resource.BinarySI))
	set(limits, corev1.ResourceCPU, resource.NewMilliQuantity(r.CPU.Limit, resource.DecimalSI))
	set(limits, corev1.ResourceMemory, resource.NewQuantity(r.Memory.Limit, resource.BinarySI))
	return requests, limits
}
