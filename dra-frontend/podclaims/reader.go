// SPDX-License-Identifier: Apache-2.0

// Package podclaims reads pods and claims from the API server. Reader reads the
// objects that a claim's values depend on: the claim's consumers and their other
// claims. Node reads this node, for claims without a limit. Watcher finds consumers that come
// after Prepare.
package podclaims

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// Reader asks the API server at each call and sets no watch: in a large cluster, watches
// of all nodes are too many.
type Reader struct{ client kubernetes.Interface }

// NewReader returns a Reader.
func NewReader(client kubernetes.Interface) Reader { return Reader{client: client} }

// Pod implements kubelet.Pods.
func (r Reader) Pod(ctx context.Context, namespace, name string) (decision.Pod, error) {
	pod, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return decision.Pod{}, err
	}
	return Convert(pod)
}

// Claim implements kubelet.Claims.
func (r Reader) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	return r.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Node reads one node.
type Node struct {
	client kubernetes.Interface
	name   string
}

// NewNode returns a reader of the named node.
func NewNode(client kubernetes.Interface, name string) Node { return Node{client: client, name: name} }

// AllocatableMemory implements kubelet.Node: bytes, from the node's status.
func (n Node) AllocatableMemory(ctx context.Context) (int64, error) {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read node %s: %w", n.name, err)
	}
	bytes := node.Status.Allocatable.Memory().Value()
	if bytes <= 0 {
		return 0, fmt.Errorf("node %s has no allocatable memory in its status", n.name)
	}
	return bytes, nil
}

// Convert returns the parts of a pod that a decision needs.
func Convert(pod *corev1.Pod) (decision.Pod, error) {
	out := decision.Pod{Name: pod.Name, PodRecord: contract.PodRecord{UID: string(pod.UID)}}
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		out.QOS = contract.LevelKubepods
	case corev1.PodQOSBurstable:
		out.QOS = contract.LevelBurstable
	case corev1.PodQOSBestEffort:
		out.QOS = contract.LevelBestEffort
	default:
		return decision.Pod{}, fmt.Errorf("pod %s/%s has QoS class %q in its status", pod.Namespace, pod.Name, pod.Status.QOSClass)
	}
	if pod.Spec.RuntimeClassName != nil {
		out.RuntimeClass = *pod.Spec.RuntimeClassName
	}
	out.UserNamespace = pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
	// A claim from a template has a generated name. Containers name the pod's
	// entry, a decision needs the object's name.
	claims := make(map[string]string, len(pod.Spec.ResourceClaims))
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return decision.Pod{}, err
		}
		if name != nil {
			claims[pod.Spec.ResourceClaims[i].Name] = *name
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		init := container(c, sidecar, claims)
		init.Init = true
		out.Containers = append(out.Containers, init)
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, container(&pod.Spec.Containers[i], true, claims))
	}
	if pod.Spec.Resources != nil {
		out.MemoryLimit = pod.Spec.Resources.Limits.Memory().Value()
		whole := resources(*pod.Spec.Resources)
		out.Resources = &whole
	}
	out.CPULimit = cpuLimit(pod)
	for size, bytes := range hugepages(resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})) {
		if out.Hugepages == nil {
			out.Hugepages = make(map[string]contract.Limit)
		}
		out.Hugepages[size] = contract.Limit(bytes)
	}
	return out, nil
}

func container(c *corev1.Container, runs bool, claims map[string]string) decision.Container {
	out := decision.Container{
		Name: c.Name, BesideMain: runs, MemoryLimit: c.Resources.Limits.Memory().Value(), Hugepages: hugepages(c.Resources.Limits),
		Resources: resources(c.Resources),
	}
	for _, m := range c.VolumeMounts {
		out.MountPaths = append(out.MountPaths, m.MountPath)
	}
	for _, ref := range c.Resources.Claims {
		if name, ok := claims[ref.Name]; ok {
			out.Claims = append(out.Claims, decision.ClaimReference{Claim: name, Request: ref.Request})
		}
	}
	return out
}

func resources(r corev1.ResourceRequirements) oomscore.Resources {
	return oomscore.Resources{
		CPU:    oomscore.Amount{Request: r.Requests.Cpu().MilliValue(), Limit: r.Limits.Cpu().MilliValue()},
		Memory: oomscore.Amount{Request: r.Requests.Memory().Value(), Limit: r.Limits.Memory().Value()},
	}
}

// hugepages returns the hugepages among limits, bytes by page size. It leaves out
// sizes that no kernel has: the API server takes them.
func hugepages(limits corev1.ResourceList) map[string]int64 {
	var out map[string]int64
	for name, q := range limits {
		size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok || q.Sign() <= 0 {
			continue
		}
		if _, err := contract.ParsePageSize(size); err != nil {
			continue
		}
		if out == nil {
			out = make(map[string]int64)
		}
		out[size] = q.Value()
	}
	return out
}

// cpuLimit returns the limit from which kubelet makes the pod's quota: the pod's own, or the
// sum of the containers' if each of them has one. It returns nil for no quota.
func cpuLimit(pod *corev1.Pod) *contract.CPULimit {
	limits := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{})
	limit := limits.Cpu().MilliValue()
	unlimited := slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return c.Resources.Limits.Cpu().IsZero()
	})
	own := pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Cpu().IsZero()
	if limit <= 0 || unlimited && !own {
		return nil
	}
	// The API server bounds each container's limit by the pod's own, and not their sum.
	sum := resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{SkipPodLevelResources: true})
	return &contract.CPULimit{Milli: limit, Open: unlimited || own && limits.Cpu().Cmp(*sum.Cpu()) < 0}
}
