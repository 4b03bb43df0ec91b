// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// patience bounds every wait: the node is emulated and slow.
const patience = 4 * time.Minute

// eventually waits until check returns nil. After patience it fails the test with
// check's last error.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	// Not the test's own context: it ends before the cleanups, which wait too.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, patience, last)
		case <-tick.C:
		}
	}
}

type capacity map[resourceapi.QualifiedName]string

// claim creates a claim of one request "zone". zone names the device that must
// serve it, any device if empty. parameters are JSON, for the whole claim.
func (s suite) claim(t *testing.T, name, zone string, amounts capacity, parameters ...string) *resourceapi.ResourceClaim {
	t.Helper()
	return s.claimOf(t, "dra.cpumem", name, zone, amounts, parameters...)
}

// claimOf creates a claim of the DeviceClass; see claim.
func (s suite) claimOf(t *testing.T, class, name, zone string, amounts capacity, parameters ...string) *resourceapi.ResourceClaim {
	t.Helper()
	claim := newClaim(class, name, zone, amounts, parameters...)
	c, err := s.client.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { s.deleteClaim(t, name) })
	return c
}

// newClaim returns a claim that is not created; see claimOf.
func newClaim(class, name, zone string, amounts capacity, parameters ...string) *resourceapi.ResourceClaim {
	requests := map[resourceapi.QualifiedName]resource.Quantity{}
	for k, v := range amounts {
		requests[k] = resource.MustParse(v)
	}
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, Capacity: &resourceapi.CapacityRequirements{Requests: requests},
	}
	if kind, id, _ := strings.Cut(zone, "-"); zone != "" {
		attribute := map[string]string{"numa": `["resource.kubernetes.io"].numaNode`, "socket": `["dra.cpumem"].socketID`}[kind]
		exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: "device.attributes" + attribute + " == " + id,
		}}}
	}
	var config []resourceapi.DeviceClaimConfiguration
	for _, p := range parameters {
		config = append(config, resourceapi.DeviceClaimConfiguration{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "dra.cpumem", Parameters: runtime.RawExtension{Raw: []byte(p)}},
		}})
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "zone", Exactly: exactly}}, Config: config,
		}},
	}
}

// class creates a DeviceClass of this driver's devices, with parameters in JSON.
func (s suite) class(t *testing.T, name, parameters string) {
	t.Helper()
	_, err := s.client.ResourceV1().DeviceClasses().Create(t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.DeviceClassSpec{
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "dra.cpumem"`}}},
			Config: []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{
					Driver: "dra.cpumem", Parameters: runtime.RawExtension{Raw: []byte(parameters)},
				},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.client.ResourceV1().DeviceClasses().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete class %s: %v", name, err)
		}
	})
}

func (s suite) deleteClaim(t *testing.T, name string) {
	err := s.client.ResourceV1().ResourceClaims("default").Delete(context.Background(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete claim %s: %v", name, err)
	}
}

// pod returns a pod with one container "main" that runs the probe with args and
// uses the claims with these names.
func pod(name string, args []string, claims ...string) *corev1.Pod {
	grace := int64(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: probe, ImagePullPolicy: corev1.PullNever, Args: args,
			}},
		},
	}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c, ResourceClaimName: &c})
		p.Spec.Containers[0].Resources.Claims = append(p.Spec.Containers[0].Resources.Claims, corev1.ResourceClaim{Name: c})
	}
	return p
}

// create creates the pod on the suite's node. The end of the test removes it.
func (s suite) create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: s.node}
	_, err := s.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { s.remove(t, p.Name) })
}

// remove deletes a pod and waits until it is gone.
func (s suite) remove(t *testing.T, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		if !apierrors.IsNotFound(err) {
			t.Errorf("delete pod %s: %v", name, err)
		}
		return
	}
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := s.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		t.Errorf("pod %s is not gone: %v", name, err)
	}
}

// run creates the pod and waits until its container runs.
func (s suite) run(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	s.create(t, p)
	return s.running(t, p.Name)
}

func (s suite) running(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	var got *corev1.Pod
	eventually(t, "pod "+name+" running", func(ctx context.Context) error {
		var err error
		if got, err = s.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range got.Status.ContainerStatuses {
			if !*c.Started || c.State.Running == nil {
				return fmt.Errorf("container %s: %+v; events: %s", c.Name, c.State, s.events(ctx, got.UID))
			}
		}
		if got.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s, conditions %+v; events: %s", got.Status.Phase, got.Status.Conditions, s.events(ctx, got.UID))
		}
		return nil
	})
	return got
}

// unschedulable waits until the scheduler reports that no node has what the pod's claims ask for.
func (s suite) unschedulable(t *testing.T, name string) {
	t.Helper()
	eventually(t, "pod "+name+" unschedulable", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable &&
				strings.Contains(c.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return fmt.Errorf("it is on node %q, conditions %+v; events: %s", p.Spec.NodeName, p.Status.Conditions, s.events(ctx, p.UID))
	})
}

// refused waits until the pod's events report that the preparation of its claims
// failed, with all of the words.
func (s suite) refused(t *testing.T, name string, words ...string) {
	t.Helper()
	eventually(t, "claim of pod "+name+" refused", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		events := s.events(ctx, p.UID)
		for _, word := range append(words, "FailedPrepareDynamicResources") {
			if !strings.Contains(events, word) {
				return fmt.Errorf("no %q in the events: %s", word, events)
			}
		}
		return nil
	})
}

// events returns the reasons and messages of an object's events, a line each.
func (s suite) events(ctx context.Context, uid types.UID) string {
	list, err := s.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(uid)})
	if err != nil {
		return err.Error()
	}
	var messages []string
	for _, e := range list.Items {
		messages = append(messages, e.Reason+": "+e.Message)
	}
	return strings.Join(messages, "\n")
}

// line is one line of the probe's output.
type line struct {
	Action       string
	Error        string
	CPUs, Mems   string
	Cgroup       map[string]string
	PagesPerNode map[string]int
	PageSize     int
	Got          int
	Stopped      string
}

// lines waits until the probe in the container main has written the action's line,
// and returns all lines by action.
func (s suite) lines(t *testing.T, name, action string) map[string]line {
	t.Helper()
	return s.linesOf(t, name, "main", action)
}

func (s suite) linesOf(t *testing.T, name, container, action string) map[string]line {
	t.Helper()
	out := map[string]line{}
	eventually(t, "output of "+name+"/"+container, func(ctx context.Context) error {
		stream, err := s.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{Container: container}).Stream(ctx)
		if err != nil {
			return err
		}
		defer stream.Close()
		scanner := bufio.NewScanner(io.LimitReader(stream, 1<<20))
		for scanner.Scan() {
			var l line
			if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
				return fmt.Errorf("%q: %w", scanner.Text(), err)
			}
			if l.Error != "" {
				return fmt.Errorf("%s: %s", l.Action, l.Error)
			}
			out[l.Action] = l
		}
		if _, ok := out[action]; !ok {
			return fmt.Errorf("no line of %q yet, got %v", action, out)
		}
		return scanner.Err()
	})
	return out
}

// beganOn requires that the program of the pod's container main began on the CPUs of
// list. If not, it reports what the container was created with and has, and what the
// daemons say of it.
func (s suite) beganOn(t *testing.T, name, list string) {
	t.Helper()
	p := s.running(t, name)
	got := s.lines(t, name, "mask")["mask"].CPUs
	if got == list {
		return
	}
	id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
	report, err := s.NodeExec(context.Background(), s.node, fmt.Sprintf(`
cd /run/containerd/io.containerd.runtime.v2.task/k8s.io/%[1]s &&
  grep -oE '"DRA_CPUMEM_[^"]*"|"cpu":\{[^}]*\}|"createRuntime":[^]]*' config.json
grep -s . %[2]s/cpuset.cpus %[2]s/cpuset.cpus.effective %[2]s/../cpuset.cpus %[2]s/../cpuset.cpus.effective
cat /var/run/cdi/dra.cpumem-node.json
grep -hE '%[1]s|/%[3]s/' /var/log/pods/%[4]s_*/*/*.log | tail -n 20
true`, id, s.cgroupDir(t, p, "main"), name, namespace))
	t.Fatalf("container main of pod %s began on CPUs %s, want %s; %v\n%s\n%s", name, got, list, err,
		s.events(context.Background(), p.UID), report)
}
