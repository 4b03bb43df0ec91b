// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

var getOptions = metav1.GetOptions{}

const actuatorSet = release + "-dra-driver-cpumem-actuator"

// stopActuator takes the actuator off all nodes. start brings it back, at the
// latest at the end of the test.
func (s suite) stopActuator(t *testing.T) (start func()) {
	t.Helper()
	s.selectNodes(t, "nowhere")
	t.Cleanup(func() { s.startActuator(t) })
	eventually(t, "actuator gone", func(ctx context.Context) error {
		return s.tainted(t, true)
	})
	return func() { s.startActuator(t) }
}

func (s suite) startActuator(t *testing.T) {
	s.selectNodes(t, "linux")
	eventually(t, "actuator back", func(ctx context.Context) error { return s.tainted(t, false) })
}

func (s suite) selectNodes(t *testing.T, os string) {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":%q}}}}}`, os)
	_, err := s.client.AppsV1().DaemonSets(namespace).
		Patch(context.Background(), actuatorSet, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// tainted returns an error unless all devices of all nodes are tainted, or none if
// want is false.
func (s suite) tainted(t *testing.T, want bool) error {
	all := s.slices(t)
	if nodes := len(s.NodeNames()); len(all) < nodes {
		return fmt.Errorf("%d slices of %d nodes", len(all), nodes)
	}
	for _, slice := range all {
		for _, d := range slice.Spec.Devices {
			if (len(d.Taints) > 0) != want {
				return fmt.Errorf("device %s has taints %+v", d.Name, d.Taints)
			}
		}
	}
	return nil
}

// A21: while the actuator is gone, the devices are tainted and no claim is
// scheduled; pods without a claim start (I7).
func TestA21_ActuatorGone(t *testing.T) {
	longOnly(t)
	s := theSuite
	start := s.stopActuator(t)
	s.claim(t, "a21", "", capacity{"cpu": "1"})
	s.create(t, pod("a21", []string{"mask", "sleep"}, "a21"))
	s.run(t, pod("a21-plain", []string{"mask", "sleep"}))
	s.unschedulable(t, "a21")
	start()
	s.running(t, "a21")
	// The plain pod's container was created on all CPUs; the actuator makes it a
	// pool container (A34).
	mine := cpus(t, s.lines(t, "a21", "mask")["mask"].CPUs)
	plain, err := s.client.CoreV1().Pods("default").Get(t.Context(), "a21-plain", getOptions)
	require.NoError(t, err)
	eventually(t, "plain pod confined", func(context.Context) error {
		if got := cpus(t, s.cgroup(t, plain, "main", "cpuset.cpus.effective")); !got.Intersection(mine).IsEmpty() {
			return fmt.Errorf("it runs on %s, the claim on %s", got, mine)
		}
		return nil
	})
}

// prepared creates the pod and waits until its claims are prepared. Its container
// is created after proceed is called: an init container, before which kubelet
// prepares the claims, waits for that.
func (s suite) prepared(t *testing.T, p *corev1.Pod) (uid types.UID, proceed func()) {
	t.Helper()
	p.Spec.InitContainers = []corev1.Container{{
		Name: "wait", Image: cluster.BusyboxImage, ImagePullPolicy: corev1.PullNever,
		Command:      []string{"sh", "-c", "until [ -e /signal/go ]; do sleep 0.2; done"},
		VolumeMounts: []corev1.VolumeMount{{Name: "signal", MountPath: "/signal"}},
	}}
	p.Spec.Volumes = []corev1.Volume{{Name: "signal", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	s.create(t, p)
	eventually(t, "init container running", func(ctx context.Context) error {
		got, err := s.client.CoreV1().Pods("default").Get(ctx, p.Name, getOptions)
		if err != nil {
			return err
		}
		uid = got.UID
		if len(got.Status.InitContainerStatuses) == 0 || got.Status.InitContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("init container %+v; events: %s", got.Status.InitContainerStatuses, s.events(ctx, uid))
		}
		return nil
	})
	return uid, func() {
		t.Helper()
		_, err := s.NodeExec(t.Context(), s.node, "touch /var/lib/kubelet/pods/"+string(uid)+"/volumes/kubernetes.io~empty-dir/signal/go")
		require.NoError(t, err)
	}
}

// A37, I5: the actuator ends between a claim's preparation and the creation of the
// container. The runtime goes on without the actuator; the guard does not.
func TestA37_GuardRefusesAnUnpinnedContainer(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.claim(t, "a37", "", capacity{"cpu": "1", "memory": "32Mi"})
	uid, proceed := s.prepared(t, pod("a37", []string{"mask", "sleep"}, "a37"))
	start := s.stopActuator(t)
	proceed()
	eventually(t, "refused by the guard", func(ctx context.Context) error {
		got, err := s.client.CoreV1().Pods("default").Get(ctx, "a37", getOptions)
		if err != nil {
			return err
		}
		for _, c := range got.Status.ContainerStatuses {
			if c.State.Running != nil {
				t.Fatal("the container runs without its decision")
			}
		}
		events := s.events(ctx, uid)
		if !strings.Contains(events, "guard") || !strings.Contains(events, "the claim's decision is") {
			return errors.New("events: " + events)
		}
		return nil
	})
	start()
	s.running(t, "a37")
	require.Equal(t, 1, cpus(t, s.lines(t, "a37", "mask")["mask"].CPUs).Size())
}

// A37, I1, I5: the CPU of a prepared claim is offline when its container is created. The
// kernel would let the container use the CPUs of all others.
func TestA37_GuardRefusesOtherCPUs(t *testing.T) {
	drivers(t, "a37-offline", func(t *testing.T, s suite, name string) {
		before := cpus(t, s.nodeState(t).Shared.CPUs)
		s.claim(t, name, "numa-1", capacity{"cpu": "1"})
		uid, proceed := s.prepared(t, pod(name, []string{"mask", "sleep"}, name))
		held := before.Difference(cpus(t, s.nodeState(t).Shared.CPUs))
		require.Equal(t, 1, held.Size())
		cpu := online(held.List()[0])
		s.sysfs(t, "0", cpu)
		proceed()
		eventually(t, "refused by the guard", func(ctx context.Context) error {
			events := s.events(ctx, uid)
			if strings.Contains(events, "the claim's decision is "+held.String()+": no CPU of the claim is online") {
				return nil
			}
			if got, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions); err == nil && got.Status.Phase == corev1.PodRunning {
				t.Fatal("the container runs on other CPUs than its claim's")
			}
			return errors.New("events: " + events)
		})
		s.sysfsAgain(t, "1", cpu)
		s.beganOn(t, name, held.String())
	})
}

// A34, A36: the actuator repairs values that were changed while it was away, and
// connects to a restarted runtime. The container's values stay.
func TestA36_Restarts(t *testing.T) {
	s := theSuite
	s.claim(t, "a36", "", capacity{"cpu": "2", "memory": "64Mi"})
	p := s.run(t, pod("a36", []string{"mask", "sleep"}, "a36"))
	want := s.lines(t, "a36", "mask")["mask"].CPUs
	unchanged := func(context.Context) error {
		if got := s.cgroup(t, p, "main", "cpuset.cpus"); got != want {
			return fmt.Errorf("cpuset.cpus is %s, want %s", got, want)
		}
		if got := s.cgroup(t, p, "main", "memory.min"); got != "67108864" {
			return fmt.Errorf("memory.min is %s", got)
		}
		return nil
	}
	start := s.stopActuator(t)
	_, err := s.NodeExec(t.Context(), node, "cd "+s.cgroupDir(t, p, "main")+" && echo 0-7 >cpuset.cpus && echo 0 >memory.min")
	require.NoError(t, err)
	start()
	eventually(t, "repaired", unchanged)

	daemons := []string{"nri-actuator", "dra-frontend"}
	killed := make(map[string]string)
	for _, daemon := range daemons {
		pid, err := s.NodeExec(t.Context(), node, "pidof "+daemon)
		require.NoError(t, err)
		killed[daemon] = pid
		_, err = s.NodeExec(t.Context(), node, "kill -9 "+pid)
		require.NoError(t, err)
	}
	eventually(t, "daemons back", func(ctx context.Context) error {
		for _, daemon := range daemons {
			if pid, err := s.NodeExec(ctx, node, "pidof "+daemon); err != nil || pid == killed[daemon] {
				return fmt.Errorf("%s: process %s, killed %s: %w", daemon, pid, killed[daemon], err)
			}
		}
		return s.ready(ctx)
	})
	require.NoError(t, unchanged(t.Context()))

	_, err = s.NodeExec(t.Context(), node, "service kill containerd; service start containerd")
	require.NoError(t, err)
	s.claim(t, "a36-after", "", capacity{"cpu": "1"})
	s.run(t, pod("a36-after", []string{"mask", "sleep"}, "a36-after"))
	require.Equal(t, 1, cpus(t, s.lines(t, "a36-after", "mask")["mask"].CPUs).Size())
	require.NoError(t, unchanged(t.Context()))
}

// ready returns an error unless all pods of the driver are ready and all nodes take claims.
func (s suite) ready(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(pods.Items) < len(s.NodeNames()) {
		return fmt.Errorf("%d pods of the driver on %d nodes", len(pods.Items), len(s.NodeNames()))
	}
	for _, p := range pods.Items {
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return fmt.Errorf("pod %s is not ready: %+v", p.Name, p.Status.Conditions)
		}
	}
	published, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.driver=dra.cpumem"})
	if err != nil {
		return err
	}
	if found, want := len(published.Items), len(s.NodeNames()); found < want {
		return fmt.Errorf("%d slices of %d nodes", found, want)
	}
	for _, slice := range published.Items {
		for _, d := range slice.Spec.Devices {
			if len(d.Taints) > 0 {
				return fmt.Errorf("%s of %s has taints %+v", d.Name, slice.Name, d.Taints)
			}
		}
	}
	return nil
}
