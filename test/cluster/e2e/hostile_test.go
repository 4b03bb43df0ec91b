// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
)

// A60: a pod's author writes a huge variable, so that the runtime goes on without
// the actuator. The pod is refused with a bounded message, and the next pod is kept
// off the victim's CPUs.
func TestA60_ForgedVariable(t *testing.T) {
	s := theSuite
	s.claim(t, "a60-victim", "", capacity{"cpu": "2"})
	s.run(t, pod("a60-victim", []string{"mask", "sleep"}, "a60-victim"))
	held := cpus(t, s.lines(t, "a60-victim", "mask")["mask"].CPUs)

	forged := pod("a60-forged", []string{"mask", "sleep"})
	env(forged, "DRA_CPUMEM_00000000000000000000000000000000_0", strings.Repeat("\x7f", 600<<10))
	s.create(t, forged)
	eventually(t, "forged pod refused", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, "a60-forged", getOptions)
		if err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
			return fmt.Errorf("containers %+v", p.Status.ContainerStatuses)
		}
		message := p.Status.ContainerStatuses[0].State.Waiting.Message
		if !strings.Contains(message, "variables DRA_CPUMEM_... have 614446 bytes") {
			return fmt.Errorf("it waits because of %.300q", message)
		}
		require.Less(t, len(message), 2000)
		return nil
	})
	s.offClaim(t, "a60-next", held)
	require.Empty(t, s.disconnected(t), "the runtime keeps the actuator")
}

// A61: the runtime cannot list its containers, because their environments are too
// large. The pods start one after the other, which takes minutes on an emulated node.
func TestA61_LargeEnvironments(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.claim(t, "a61-victim", "", capacity{"cpu": "2"})
	s.run(t, pod("a61-victim", []string{"mask", "sleep"}, "a61-victim"))
	held := cpus(t, s.lines(t, "a61-victim", "mask")["mask"].CPUs)
	// NRI lists at least four containers in a message of 4 MiB. Three of these
	// do not fit, and so few others run that three of these meet in one message.
	const large = 6
	from := s.largeVariables(t, "a61-large")
	for i := range large {
		p := pod(fmt.Sprintf("a61-large-%d", i), []string{"sleep"})
		p.Spec.Containers[0].EnvFrom = from
		s.run(t, p)
	}
	// The actuator keeps only the contract's variables in memory.
	actuator := s.daemon(t, "actuator")
	peak, err := strconv.Atoi(s.cgroup(t, &actuator, "actuator", "memory.peak"))
	require.NoError(t, err)
	require.Less(t, int64(peak), actuator.Spec.Containers[0].Resources.Limits.Memory().Value()*9/10)
	_, err = s.NodeExec(t.Context(), s.node, "service kill containerd; service start containerd")
	require.NoError(t, err)
	eventually(t, "the reason to be announced", func(context.Context) error {
		if reason := s.disconnected(t); !strings.Contains(reason, "MiB of environment") {
			return fmt.Errorf("announced is %q", reason)
		}
		return nil
	})
	s.offClaim(t, "a61-next", held)
	require.NotEmpty(t, s.disconnected(t), "nobody is connected all the while")
	for i := range large {
		s.remove(t, fmt.Sprintf("a61-large-%d", i))
	}
	eventually(t, "connected again", func(context.Context) error {
		if reason := s.disconnected(t); reason != "" {
			return errors.New(reason)
		}
		return nil
	})
}

// largeVariables returns environment variables of 1.8 MiB. Linux runs no program
// with 2 MiB of them, nor with a single one of 128 KiB, and a ConfigMap holds 1 MiB.
func (s suite) largeVariables(t *testing.T, name string) []corev1.EnvFromSource {
	t.Helper()
	var from []corev1.EnvFromSource
	configMaps := s.client.CoreV1().ConfigMaps("default")
	for i, variables := range []int{8, 7} {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i)}, Data: map[string]string{}}
		for j := range variables {
			c.Data[fmt.Sprintf("LARGE_%d_%d", i, j)] = strings.Repeat("x", 120<<10)
		}
		_, err := configMaps.Create(t.Context(), c, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			if err := configMaps.Delete(context.Background(), c.Name, metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete ConfigMap %s: %v", c.Name, err)
			}
		})
		from = append(from, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: c.Name},
		}})
	}
	return from
}

// A62: a pod holds connections to the metrics of both daemons, with headers that do
// not end. Neither daemon ends or comes near its memory limit.
func TestA62_HostileConnections(t *testing.T) {
	longOnly(t)
	s := theSuite
	before := map[string]corev1.Pod{}
	args := []string{}
	for _, component := range []string{"actuator", "frontend"} {
		before[component] = s.daemon(t, component)
		args = append(args, "flood", s.address(t, component), "300", "900Ki")
	}
	s.run(t, pod("a62", append(args, "mask", "sleep")))
	s.lines(t, "a62", "mask") // after both floods
	for component, was := range before {
		is := s.daemon(t, component)
		require.Equal(t, was.UID, is.UID)
		require.Equal(t, was.Status.ContainerStatuses[0].RestartCount, is.Status.ContainerStatuses[0].RestartCount, component)
		peak, err := strconv.Atoi(s.cgroup(t, &is, component, "memory.peak"))
		require.NoError(t, err)
		limit := is.Spec.Containers[0].Resources.Limits.Memory().Value()
		require.Less(t, int64(peak), limit*9/10, "%s: most memory of %d", component, limit)
		t.Logf("%s: %d MiB of %d", component, peak>>20, limit>>20)
	}
	require.Empty(t, s.disconnected(t), "the runtime keeps the actuator")
}

// daemon returns the pod of a daemon on the node; component is "actuator" or "frontend".
func (s suite) daemon(t *testing.T, component string) corev1.Pod {
	t.Helper()
	pods, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + s.node, LabelSelector: "app.kubernetes.io/component=" + component,
	})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1, "pods of the %s", component)
	return pods.Items[0]
}

// address returns the address and port of a daemon's metrics.
func (s suite) address(t *testing.T, component string) string {
	t.Helper()
	p := s.daemon(t, component)
	return fmt.Sprintf("%s:%d", p.Status.PodIP, p.Spec.Containers[0].Ports[0].ContainerPort)
}

// offClaim runs a pod without a claim and waits until the pod is off the held CPUs.
func (s suite) offClaim(t *testing.T, name string, held cpuset.CPUSet) *corev1.Pod {
	t.Helper()
	p := s.run(t, pod(name, []string{"mask", "sleep"}))
	eventually(t, name+" off the claim's CPUs", func(context.Context) error {
		if got := cpus(t, s.cgroup(t, p, "main", "cpuset.cpus.effective")); !got.Intersection(held).IsEmpty() {
			return fmt.Errorf("it may run on %s, the claim has %s", got, held)
		}
		return nil
	})
	return p
}

// disconnected returns the announced reason why no runtime is connected, empty if one is.
func (s suite) disconnected(t *testing.T) string {
	t.Helper()
	const member = `"disconnected":"`
	text := strings.ReplaceAll(s.file(t, "/var/run/cdi/dra.cpumem-actuator.json"), `\"`, `"`)
	_, reason, found := strings.Cut(text, member)
	if !found {
		return ""
	}
	return reason
}
