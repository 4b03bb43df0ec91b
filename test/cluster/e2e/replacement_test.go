// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// lasting makes the pod take some seconds to end, so that the next pod comes before that.
func lasting(p *corev1.Pod) *corev1.Pod {
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 8}}}
	return p
}

// deploy creates a Deployment of one lasting pod on the suite's node. Its next pod
// is made while the former pod ends.
func (s suite) deploy(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	p := lasting(pod(name, []string{"mask", "sleep"}, name))
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
	_, err := s.client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(1)),
				},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { s.undeploy(t, name) })
}

// undeploy deletes a Deployment and waits until its pods are gone.
func (s suite) undeploy(t *testing.T, name string) {
	t.Helper()
	err := s.client.AppsV1().Deployments("default").
		Delete(context.Background(), name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete deployment %s: %v", name, err)
	}
	eventually(t, "pods of "+name+" gone", func(ctx context.Context) error {
		pods, err := s.podsOf(ctx, name)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d pods are left", len(pods))
		}
		return err
	})
}

func (s suite) podsOf(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := s.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// generation waits until the Deployment has one pod, which is not known and runs.
// It adds the pod to known and returns it.
func (s suite) generation(t *testing.T, name string, known map[types.UID]bool) *corev1.Pod {
	t.Helper()
	var next *corev1.Pod
	eventually(t, "next pod of "+name, func(ctx context.Context) error {
		pods, err := s.podsOf(ctx, name)
		if err != nil {
			return err
		}
		if len(pods) != 1 || known[pods[0].UID] {
			return fmt.Errorf("%d pods, want a new one", len(pods))
		}
		next = &pods[0]
		return nil
	})
	known[next.UID] = true
	return s.running(t, next.Name)
}

// A64: a Deployment with one named claim is rolled five times. Kubelet does not prepare the claim again, because the former pod is ending
// when the next pod comes.
func TestA64_Replacement(t *testing.T) {
	longOnly(t)
	drivers(t, "a64", func(t *testing.T, s suite, prefix string) {
		for kind, c := range map[string]struct {
			amounts    capacity
			parameters []string
		}{
			"cpu":       {capacity{"cpu": "1"}, nil},
			"memory":    {capacity{"cpu": "1", "memory": "32Mi", "hugepages_2Mi": "4Mi"}, nil},
			"partition": {capacity{"cpu": "1"}, []string{parameters(`"cpu":{"isolation":"partition"}`)}},
		} {
			if kind == "partition" && !s.partitions(t) {
				continue
			}
			name := prefix + "-" + kind
			t.Run(kind, func(t *testing.T) {
				s.claim(t, name, "", c.amounts, c.parameters...)
				s.deploy(t, name)
				known := make(map[types.UID]bool)
				s.generation(t, name, known)
				const rounds = 5
				for round := range rounds {
					patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round)
					_, err := s.client.AppsV1().Deployments("default").
						Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
					require.NoError(t, err)
					p := s.generation(t, name, known)
					own := s.lines(t, p.Name, "mask")["mask"].CPUs
					require.Equal(t, 1, cpus(t, own).Size(), "round %d: %s", round, own)
					require.Equal(t, own, s.cgroup(t, p, "main", "cpuset.cpus.effective"), "round %d", round)
					switch kind {
					case "memory":
						require.Equal(t, "33554432", s.cgroup(t, p, "main", "memory.min"), "round %d", round)
						require.Equal(t, "4194304", s.cgroup(t, p, "main", "hugetlb.2MB.max"), "round %d", round)
					case "partition":
						require.Equal(t, "root", s.cgroup(t, p, "main", "cpuset.cpus.partition"), "round %d", round)
					}
				}
				require.Len(t, known, 1+rounds)
			})
		}
	})
}

// A64, I1: a pod is deleted by force while its program goes on, and its claim is
// allocated anew. The next pod waits until that program has ended.
func TestA64_ForcedDeletion(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.claim(t, "a64-force", "numa-1", capacity{"cpu": "1", "memory": "32Mi"})
	former := s.cgroupDir(t, s.run(t, lasting(pod("a64-forced", []string{"mask", "sleep"}, "a64-force"))), "main")
	require.NoError(t, s.client.CoreV1().Pods("default").
		Delete(t.Context(), "a64-forced", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	next := s.run(t, pod("a64-next", []string{"mask", "sleep"}, "a64-force"))
	processes, err := s.NodeExec(t.Context(), s.node, "cat "+former+"/cgroup.procs 2>/dev/null || true")
	require.NoError(t, err)
	require.Empty(t, strings.TrimSpace(processes), "I1: the former program runs beside the next pod")
	own := s.lines(t, next.Name, "mask")["mask"].CPUs
	require.Equal(t, 1, cpus(t, own).Size())
	require.Equal(t, own, s.cgroup(t, next, "main", "cpuset.cpus.effective"))
	require.Equal(t, "33554432", s.cgroup(t, next, "main", "memory.min"))
}
