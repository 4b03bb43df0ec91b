// SPDX-License-Identifier: Apache-2.0

// Package pods reads from the API server what a claim's values depend on in
// the pods it is reserved for. One GET for each pod and Prepare; no watch, so
// that a large cluster is not watched by every node.
package pods

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/plugin"
)

// Reader reads pods.
type Reader struct{ client kubernetes.Interface }

// NewReader returns a Reader.
func NewReader(client kubernetes.Interface) Reader { return Reader{client: client} }

// Pod implements plugin.Pods.
func (r Reader) Pod(ctx context.Context, namespace, name string) (plugin.Pod, error) {
	pod, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return plugin.Pod{}, err
	}
	return Convert(pod)
}

// Convert picks out of a pod what the plugin needs.
func Convert(pod *corev1.Pod) (plugin.Pod, error) {
	out := plugin.Pod{Name: pod.Name, PodRecord: contract.PodRecord{UID: string(pod.UID)}}
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		out.QOS = contract.LevelKubepods
	case corev1.PodQOSBurstable:
		out.QOS = contract.LevelBurstable
	case corev1.PodQOSBestEffort:
		out.QOS = contract.LevelBestEffort
	default:
		return plugin.Pod{}, fmt.Errorf("pod %s/%s has QoS class %q in its status", pod.Namespace, pod.Name, pod.Status.QOSClass)
	}
	// A claim template's claim has a generated name: containers name the
	// pod's entry, the plugin knows the object.
	claims := make(map[string]string, len(pod.Spec.ResourceClaims))
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return plugin.Pod{}, err
		}
		if name != nil {
			claims[pod.Spec.ResourceClaims[i].Name] = *name
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		out.Containers = append(out.Containers, container(c, sidecar, claims))
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, container(&pod.Spec.Containers[i], true, claims))
	}
	out.Hugepages = hugepages(pod)
	return out, nil
}

func container(c *corev1.Container, runs bool, claims map[string]string) plugin.Container {
	out := plugin.Container{Name: c.Name, Runs: runs, MemoryLimit: c.Resources.Limits.Memory().Value()}
	for _, ref := range c.Resources.Claims {
		if name, ok := claims[ref.Name]; ok {
			out.Claims = append(out.Claims, plugin.ClaimReference{Claim: name, Request: ref.Request})
		}
	}
	return out
}

// hugepages returns the limits of the pod's own spec by page size, as kubelet
// computes them for the pod's cgroup: the claims' amounts come on top.
func hugepages(pod *corev1.Pod) map[string]contract.Limit {
	var limits map[string]contract.Limit
	for name, q := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok || q.Sign() <= 0 {
			continue
		}
		if _, err := contract.ParsePageSize(size); err != nil {
			// The API server takes any size; the kernel has no such pages, so
			// there is no file to write.
			continue
		}
		if limits == nil {
			limits = make(map[string]contract.Limit)
		}
		limits[size] = contract.Limit(q.Value())
	}
	return limits
}
