// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const (
	namespace = "default"
	driver    = "dra.cpumem"
)

// container is a container with a claim of its own on the Bench's NUMA node.
type container struct {
	name   string
	claim  int    // bytes; 0 is no claim
	memory string // field "memory" of the claim's parameters, JSON; empty for none
	swap   bool   // repeat the amount in the pod's requests: that makes it Burstable, the class that may swap
	args   []string
}

// create makes the claims and the pod of the containers.
func (b *Bench) create(ctx context.Context, name string, containers ...container) error {
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyNever,
			NodeSelector: map[string]string{corev1.LabelHostname: b.Node},
		},
	}
	for _, c := range containers {
		out := corev1.Container{Name: c.name, Image: cluster.ProbeImage, ImagePullPolicy: corev1.PullNever, Args: c.args}
		if c.claim == 0 {
			out.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_NICE"}}}
		} else {
			claim := b.claim(name+"-"+c.name, c)
			if _, err := b.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return err
			}
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.name, ResourceClaimName: &claim.Name})
			out.Resources.Claims = []corev1.ResourceClaim{{Name: c.name}}
		}
		if c.swap {
			out.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(c.claim), resource.BinarySI)}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, out)
	}
	_, err := b.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (b *Bench) claim(name string, c container) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "zone", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: driver,
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
					Expression: `device.attributes["resource.kubernetes.io"].numaNode == ` + strconv.Itoa(b.NUMA),
				}}},
				Capacity: &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
					"memory": *resource.NewQuantity(int64(c.claim), resource.BinarySI),
				}},
			},
		}}}},
	}
	if c.memory != "" {
		text := `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters","memory":` + c.memory + `}`
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
		}}}
	}
	return claim
}

// said waits until the container's program has done the action and returns when that was, in seconds the node is up.
func (b *Bench) said(ctx context.Context, pod, container, action string) (float64, error) {
	ahead, err := b.clock(ctx)
	if err != nil {
		return 0, err
	}
	var at float64
	err = eventually(ctx, pod+"/"+container+": "+action, func(ctx context.Context) error {
		text, err := b.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Timestamps: true}).DoRaw(ctx)
		if err != nil {
			return errors.Join(err, b.events(ctx, pod))
		}
		for line := range strings.Lines(string(text)) {
			stamp, line, _ := strings.Cut(line, " ")
			when, err := time.Parse(time.RFC3339Nano, stamp)
			if err != nil {
				return fmt.Errorf("log of %s: %w", pod, err)
			}
			var said struct{ Action, Error string }
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				return fmt.Errorf("log of %s: %q: %w", pod, line, err)
			}
			if said.Error != "" {
				return fmt.Errorf("%s: %s", said.Action, said.Error)
			}
			if said.Action == action {
				at = float64(when.UnixNano())/1e9 - ahead
				return nil
			}
		}
		return fmt.Errorf("not done yet: %s", text)
	})
	return at, err
}

// events is an error that holds what the cluster says of a pod.
func (b *Bench) events(ctx context.Context, pod string) error {
	list, err := b.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return err
	}
	var messages []string
	for _, e := range list.Items {
		messages = append(messages, e.Reason+": "+e.Message)
	}
	return fmt.Errorf("events: %s", strings.Join(messages, "; "))
}

func (b *Bench) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return b.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// remove deletes pods and their claims and waits until they are gone.
func (b *Bench) remove(ctx context.Context, pods ...string) error {
	var claims []string
	for _, name := range pods {
		p, err := b.pod(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return err
		}
		for _, c := range p.Spec.ResourceClaims {
			claims = append(claims, *c.ResourceClaimName)
		}
		if err := b.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, c := range claims {
		if err := b.Client.ResourceV1().ResourceClaims(namespace).Delete(ctx, c, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return eventually(ctx, "pods and claims gone", func(ctx context.Context) error {
		for _, name := range pods {
			if _, err := b.pod(ctx, name); !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s is there, %w", name, err)
			}
		}
		for _, name := range claims {
			if _, err := b.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("claim %s is there, %w", name, err)
			}
		}
		return nil
	})
}

// eventually asks until the answer is nil, and gives the last answer if it never is.
func eventually(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
