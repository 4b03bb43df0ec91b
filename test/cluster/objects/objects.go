// SPDX-License-Identifier: Apache-2.0

// Package objects makes, reads and removes the pods and claims of programs that measure on a running cluster. Its
// containers run the probe, and it reads the probe's output.
package objects

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const (
	namespace = "default"
	driver    = "dra.cpumem"
	// patience bounds every wait: nodes are emulated and slow.
	patience = 8 * time.Minute
	// often is the interval at which a wait looks again.
	often = 300 * time.Millisecond
)

// Objects makes and reads the pods and claims of one node.
type Objects struct {
	Client kubernetes.Interface
	Node   string
	// Restarted gives pods the restart policy Always instead of Never.
	Restarted bool
}

// Amounts are what a claim asks for, by capacity.
type Amounts = map[resourceapi.QualifiedName]resource.Quantity

// Claim is a claim of one zone.
type Claim struct {
	Amounts    Amounts
	NUMA       int    // the zone
	Class      string // DeviceClass; empty is the driver's own
	Parameters string // fields of the claim's parameters, JSON, like `"cpu":{...}`; empty for none
}

// Container is a container that runs the probe with Args.
type Container struct {
	Name         string
	Claim        *Claim
	Args         []string
	Requests     corev1.ResourceList
	Limits       corev1.ResourceList // also the requests of resources without a request
	Capabilities []corev1.Capability
}

// Create makes the pod and the claims of its containers.
func (o Objects) Create(ctx context.Context, name string, containers ...Container) error {
	grace := int64(0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyNever,
			NodeSelector: map[string]string{corev1.LabelHostname: o.Node},
		},
	}
	for _, c := range containers {
		out := corev1.Container{Name: c.Name, Image: cluster.ProbeImage, ImagePullPolicy: corev1.PullNever, Args: c.Args}
		out.Resources.Requests, out.Resources.Limits = c.Requests, c.Limits
		if len(c.Capabilities) > 0 {
			out.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: c.Capabilities}}
		}
		if c.Claim != nil {
			claim := c.Claim.object(name + "-" + c.Name)
			if _, err := o.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return err
			}
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: c.Name, ResourceClaimName: &claim.Name})
			out.Resources.Claims = []corev1.ResourceClaim{{Name: c.Name}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, out)
	}
	if o.Restarted {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	_, err := o.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// CreateFrom makes the pod and the claims of a YAML file. NAME in the file stands for the name of the pod.
func (o Objects) CreateFrom(ctx context.Context, file []byte, name string) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(bytes.ReplaceAll(file, []byte("NAME"), []byte(name)))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("file of pod %s: %w", name, err)
		}
		switch object := object.(type) {
		case *corev1.Pod:
			_, err = o.Client.CoreV1().Pods(namespace).Create(ctx, object, metav1.CreateOptions{})
		case *resourceapi.ResourceClaim:
			_, err = o.Client.ResourceV1().ResourceClaims(namespace).Create(ctx, object, metav1.CreateOptions{})
		default:
			err = fmt.Errorf("file of pod %s: there is a %T, and only Pod v1 and ResourceClaim resource.k8s.io/v1 are known", name, object)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Claim) object(name string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "zone", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: cmp.Or(c.Class, driver),
				Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
					Expression: `device.attributes["resource.kubernetes.io"].numaNode == ` + strconv.Itoa(c.NUMA),
				}}},
			},
		}}}},
	}
	if len(c.Amounts) > 0 {
		claim.Spec.Devices.Requests[0].Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: c.Amounts}
	}
	if c.Parameters != "" {
		text := `{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + c.Parameters + `}`
		claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
			Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(text)}},
		}}}
	}
	return claim
}

// Said waits until the container's program has done the action and returns the time of the action's log line.
func (o Objects) Said(ctx context.Context, pod, container, action string) (at time.Time, err error) {
	err = Eventually(ctx, pod+"/"+container+": "+action, often, func(ctx context.Context) error {
		text, err := o.Client.CoreV1().Pods(namespace).
			GetLogs(pod, &corev1.PodLogOptions{Container: container, Timestamps: true}).DoRaw(ctx)
		if err != nil {
			return errors.Join(err, o.events(ctx, pod))
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
				at = when
				return nil
			}
		}
		return fmt.Errorf("not done yet: %s", text)
	})
	return at, err
}

// Log returns what the container's program has printed.
func (o Objects) Log(ctx context.Context, pod, container string) (string, error) {
	text, err := o.Client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	return string(text), err
}

// Ready waits until the pod is ready; it looks at the interval every.
func (o Objects) Ready(ctx context.Context, name string, every time.Duration) error {
	err := Eventually(ctx, "pod "+name+" ready", every, func(ctx context.Context) error {
		p, err := o.Pod(ctx, name)
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s, containers %+v", p.Status.Phase, p.Status.ContainerStatuses)
	})
	if err != nil {
		return errors.Join(err, o.events(context.WithoutCancel(ctx), name))
	}
	return nil
}

// events returns an error with the messages of a pod's events.
func (o Objects) events(ctx context.Context, pod string) error {
	list, err := o.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return err
	}
	var messages []string
	for _, e := range list.Items {
		messages = append(messages, e.Reason+": "+e.Message)
	}
	return fmt.Errorf("events: %s", strings.Join(messages, "; "))
}

// Pod returns the pod as the API server has it.
func (o Objects) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return o.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Remove deletes pods and their claims and waits until they are gone. Pods that do not exist are skipped.
func (o Objects) Remove(ctx context.Context, pods ...string) error {
	var claims []string
	for _, name := range pods {
		p, err := o.Pod(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return err
		}
		for _, c := range p.Spec.ResourceClaims {
			if c.ResourceClaimName != nil { // a template's claim goes with its pod
				claims = append(claims, *c.ResourceClaimName)
			}
		}
		if err := o.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, c := range claims {
		if err := o.Client.ResourceV1().ResourceClaims(namespace).
			Delete(ctx, c, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return Eventually(ctx, "pods and claims gone", often, func(ctx context.Context) error {
		for _, name := range pods {
			if _, err := o.Pod(ctx, name); !apierrors.IsNotFound(err) {
				return fmt.Errorf("pod %s is there, %w", name, err)
			}
		}
		for _, name := range claims {
			if _, err := o.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("claim %s is there, %w", name, err)
			}
		}
		return nil
	})
}

// Eventually calls ask at the interval every until it returns nil. After patience, or when ctx ends, the error wraps
// ask's last error.
func Eventually(ctx context.Context, what string, every time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
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
