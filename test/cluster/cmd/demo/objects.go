// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const (
	namespace = "default"
	example   = "examples/latency-critical.yaml"
	patience  = 2 * time.Minute
)

// parseExample returns the example's two objects.
func parseExample(data string) (*resourceapi.ResourceClaimTemplate, *corev1.Pod, error) {
	var (
		template *resourceapi.ResourceClaimTemplate
		pod      *corev1.Pod
	)
	for doc := range strings.SplitSeq(data, "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			return nil, nil, err
		}
		switch o := object.(type) {
		case *resourceapi.ResourceClaimTemplate:
			template = o
		case *corev1.Pod:
			pod = o
		}
	}
	if template == nil || pod == nil {
		return nil, nil, fmt.Errorf("want a ResourceClaimTemplate and a Pod")
	}
	return template, pod, nil
}

// asked returns the amounts of the template's one request, by capacity.
func asked(t *resourceapi.ResourceClaimTemplate) map[string]string {
	return amounts(t.Spec.Spec.Devices.Requests[0].Exactly.Capacity.Requests)
}

// probed makes the pod's container run the probe, which prints what the kernel gives it.
func probed(pod *corev1.Pod, args ...string) *corev1.Pod {
	grace := int64(1)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	c := &pod.Spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command, c.Args = cluster.ProbeImage, corev1.PullNever, nil, args
	return pod
}

// neighbour is a pod without a claim.
func neighbour(name string) *corev1.Pod {
	return probed(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}, "sleep")
}

// apply creates the example's objects, waits until the pod runs, and returns both.
func (d *demo) apply(ctx context.Context) (*resourceapi.ResourceClaimTemplate, *corev1.Pod, error) {
	data, err := os.ReadFile(example)
	if err != nil {
		return nil, nil, err
	}
	template, pod, err := parseExample(string(data))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", example, err)
	}
	if _, err := d.client.ResourceV1().ResourceClaimTemplates(namespace).Create(ctx, template, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	pod = probed(pod, "mask", "view", "touch", "64Mi", "hugepages", "2Mi", "33", "sleep")
	pod, err = d.run(ctx, pod)
	return template, pod, err
}

// run creates the pod and waits until it runs.
func (d *demo) run(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if _, err := d.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	var got *corev1.Pod
	err := d.eventually(ctx, "waiting for pod "+pod.Name, func() (err error) {
		if got, err = d.client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if got.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("phase %s; events: %s", got.Status.Phase, d.events(ctx, got))
		}
		return nil
	})
	return got, err
}

func (d *demo) events(ctx context.Context, pod *corev1.Pod) string {
	list, err := d.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return err.Error()
	}
	var messages []string
	for _, e := range list.Items {
		messages = append(messages, e.Reason+": "+e.Message)
	}
	return strings.Join(messages, "; ")
}

// remove deletes a pod and waits until it is gone.
func (d *demo) remove(ctx context.Context, name string) error {
	if err := d.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return d.eventually(ctx, "waiting until pod "+name+" is gone", func() error {
		_, err := d.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there, %w", err)
	})
}

// claimOf returns the claim that was made from the template for the pod.
func (d *demo) claimOf(ctx context.Context, pod *corev1.Pod) (*resourceapi.ResourceClaim, error) {
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.ResourceClaimName != nil {
			return d.client.ResourceV1().ResourceClaims(namespace).Get(ctx, *s.ResourceClaimName, metav1.GetOptions{})
		}
	}
	return nil, fmt.Errorf("pod %s has no claim in its status", pod.Name)
}

// seen is one line of the probe's output.
type seen struct {
	Action, Error string
	CPUs, Mems    string
	Cgroup        map[string]string
	PagesPerNode  map[string]int
	Got           int
	Stopped       string
}

// output waits until the probe has printed the line of the action last, and returns
// all lines by action.
func (d *demo) output(ctx context.Context, pod *corev1.Pod, last string) (map[string]seen, error) {
	var lines map[string]seen
	err := d.eventually(ctx, "waiting for the container's own view", func() error {
		text, err := d.client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return err
		}
		lines = map[string]seen{}
		for text := range strings.Lines(string(text)) {
			var s seen
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				return fmt.Errorf("%q: %w", text, err)
			}
			if s.Error != "" {
				return fmt.Errorf("%s: %s", s.Action, s.Error)
			}
			lines[s.Action] = s
		}
		if _, ok := lines[last]; !ok {
			return fmt.Errorf("no line of %q yet", last)
		}
		return nil
	})
	return lines, err
}

// eventually calls ask until it returns nil, for at most patience. what is for messages.
func (d *demo) eventually(ctx context.Context, what string, ask func() error) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s for %.0f s: %w", what, time.Since(begin).Seconds(), err)
		case <-tick.C:
		}
	}
}
