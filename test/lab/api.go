// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

const namespace = "default"

// Allocatable is the node's allocatable memory.
const Allocatable = "24Gi"

// API is the part of an API server that this driver calls.
type API struct {
	t      T
	Client *fake.Clientset
	writes atomic.Int64
	// versions counts the versions of claims.
	versions atomic.Int64
	// refusesSlices reports whether slices are refused. A reactor must not be added
	// while the frontend calls the server.
	refusesSlices atomic.Bool
}

// newAPI returns a server. It is a simple clientset, without the slow records of
// each field's writer, which only server-side apply needs.
func newAPI(t T) *API {
	a := &API{t: t, Client: fake.NewSimpleClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, UID: "node"},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(Allocatable)}},
	})}
	a.Client.PrependReactor("*", "resourceslices", func(action ktesting.Action) (bool, kruntime.Object, error) {
		if a.refusesSlices.Load() && slices.Contains([]string{"create", "update"}, action.GetVerb()) {
			return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceslices"), "", errors.New("refused by the test"))
		}
		if slices.Contains([]string{"create", "update", "patch", "delete"}, action.GetVerb()) {
			a.writes.Add(1)
		}
		if create, ok := action.(ktesting.CreateAction); ok {
			a.name(create.GetObject().(*resourceapi.ResourceSlice))
		}
		return false, nil, nil
	})
	a.Client.PrependReactor("*", "resourceclaims", a.writeClaim)
	return a
}

// name gives a slice a name and a UID as the server does. The fake clientset does
// not.
func (a *API) name(s *resourceapi.ResourceSlice) {
	if s.Name == "" {
		s.Name = fmt.Sprintf("%s%05d", s.GenerateName, a.writes.Load())
		s.UID = types.UID(s.Name)
	}
}

// Slices returns the published slices in the allocator's order.
func (a *API) Slices() []*resourceapi.ResourceSlice {
	list, err := a.Client.ResourceV1().ResourceSlices().List(a.t.Context(), metav1.ListOptions{})
	require.NoError(a.t, err)
	out := make([]*resourceapi.ResourceSlice, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	slices.SortFunc(out, func(x, y *resourceapi.ResourceSlice) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func (a *API) deleteSlices() {
	for _, s := range a.Slices() {
		require.NoError(a.t, a.Client.ResourceV1().ResourceSlices().Delete(a.t.Context(), s.Name, metav1.DeleteOptions{}))
	}
}

// Devices returns all published devices by name.
func (a *API) Devices() map[string]resourceapi.Device {
	var all []resourceapi.Device
	for _, s := range a.Slices() {
		all = append(all, s.Spec.Devices...)
	}
	return byName(all)
}

func byName(devices []resourceapi.Device) map[string]resourceapi.Device {
	out := make(map[string]resourceapi.Device, len(devices))
	for _, d := range devices {
		out[d.Name] = d
	}
	return out
}

// Writes counts the writes of slices.
func (a *API) Writes() int { return int(a.writes.Load()) }

// Request is a request of a claim.
type Request struct {
	Name string
	// Capacity has quantities by capacity name.
	Capacity map[string]string
	// Zone, if set, is the device that the request needs.
	Zone string
	// Parameters, if set, has the members of the request's ClaimParameters, as
	// JSON.
	Parameters string
	// First, if set, has subrequests. The scheduler takes the first that fits.
	First []Request
}

// Claim creates a claim and returns its name.
func (n *Node) Claim(name string, requests ...Request) string {
	n.t.Helper()
	return n.claim(metav1.ObjectMeta{Name: name}, requests)
}

// TemplateClaim creates a claim as if from a template, owned by the pod, and
// returns its name.
func (n *Node) TemplateClaim(pod, name string, requests ...Request) string {
	n.t.Helper()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod, Controller: new(true)}
	annotations := map[string]string{resourceapi.PodResourceClaimAnnotation: name}
	return n.claim(metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}, Annotations: annotations}, requests)
}

func (n *Node) claim(meta metav1.ObjectMeta, requests []Request) string {
	n.t.Helper()
	meta.Namespace, meta.UID = namespace, types.UID(n.uid())
	c := &resourceapi.ResourceClaim{ObjectMeta: meta}
	for _, r := range requests {
		request := resourceapi.DeviceRequest{Name: r.Name}
		if len(r.First) == 0 {
			request.Exactly = r.exactly()
		}
		for _, sub := range r.First {
			e := sub.exactly()
			request.FirstAvailable = append(request.FirstAvailable, resourceapi.DeviceSubRequest{
				Name: sub.Name, DeviceClassName: e.DeviceClassName, Selectors: e.Selectors,
				AllocationMode: e.AllocationMode, Count: e.Count, Capacity: e.Capacity,
			})
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, request)
		c.Spec.Devices.Config = append(c.Spec.Devices.Config, r.configurations("")...)
	}
	_, err := n.API.Client.ResourceV1().ResourceClaims(namespace).Create(n.t.Context(), c, metav1.CreateOptions{})
	require.NoError(n.t, err)
	return meta.Name
}

func (r Request) exactly() *resourceapi.ExactDeviceRequest {
	e := &resourceapi.ExactDeviceRequest{
		DeviceClassName: kubelet.DriverName, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourceapi.CapacityRequirements{Requests: make(map[resourceapi.QualifiedName]resource.Quantity)},
	}
	for capacity, amount := range r.Capacity {
		e.Capacity.Requests[resourceapi.QualifiedName(capacity)] = resource.MustParse(amount)
	}
	if id, ok := strings.CutPrefix(r.Zone, "numa-"); ok {
		e.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.attributes["resource.kubernetes.io"].numaNode == ` + id,
		}}}
	}
	return e
}

// configurations returns the parameters of the request and of its subrequests.
func (r Request) configurations(parent string) []resourceapi.DeviceClaimConfiguration {
	var out []resourceapi.DeviceClaimConfiguration
	if r.Parameters != "" {
		out = append(out, resourceapi.DeviceClaimConfiguration{
			Requests: []string{parent + r.Name}, DeviceConfiguration: configuration(r.Parameters),
		})
	}
	for _, sub := range r.First {
		out = append(out, sub.configurations(r.Name+"/")...)
	}
	return out
}

// Level is a pod's QoS class.
type Level = corev1.PodQOSClass

// Levels.
const (
	Guaranteed = corev1.PodQOSGuaranteed
	Burstable  = corev1.PodQOSBurstable
	BestEffort = corev1.PodQOSBestEffort
)

// ContainerSpec is a container in a pod's spec.
type ContainerSpec struct {
	Name string
	// Claims has names of claims; "claim/request" is one request of a claim.
	Claims []string
	Env    []string
	// MemoryLimit is the container's own limit.
	MemoryLimit string
	// Hugepages has the container's own limits by page size.
	Hugepages map[string]string
	Init      bool
	// OldCDI gives the runtime a CDI library up to 1.1.0, which adds a variable
	// beside a variable of the same name.
	OldCDI bool
	// Annotated has CDI devices that the container asks for by annotations.
	Annotated []string
}

// Pod is a pod on the node.
type Pod struct {
	Name, UID  string
	Level      Level
	Containers []ContainerSpec
	// prepared has the frontend's answers to kubelet: devices by claim name.
	prepared map[string][]device
	made     bool
	// scheduled and removed report whether the node's history has the pod, and its end.
	scheduled, removed bool
}

// device is a device of a prepared claim.
type device struct {
	requests []string
	cdi      []string
}

// Claims returns the names of the pod's claims, sorted.
func (p *Pod) Claims() []string {
	names := make(map[string]bool)
	for _, c := range p.Containers {
		for _, ref := range c.Claims {
			name, _, _ := strings.Cut(ref, "/")
			names[name] = true
		}
	}
	return sorted(names)
}

func (p *Pod) container(name string) ContainerSpec {
	for _, c := range p.Containers {
		if c.Name == name {
			return c
		}
	}
	panic(fmt.Sprintf("pod %s has no container %q", p.Name, name))
}

// Pod creates a pod.
func (n *Node) Pod(name string, level Level, containers ...ContainerSpec) *Pod {
	n.t.Helper()
	p := &Pod{Name: name, UID: n.uid(), Level: level, Containers: containers, prepared: make(map[string][]device)}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(p.UID)},
		Spec:       corev1.PodSpec{NodeName: NodeName},
		Status:     corev1.PodStatus{QOSClass: level},
	}
	for _, claim := range p.Claims() {
		ref := corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim}
		if metav1.GetControllerOf(n.API.ReadClaim(claim)) != nil {
			ref = corev1.PodResourceClaim{Name: claim, ResourceClaimTemplateName: new("template")}
			object.Status.ResourceClaimStatuses = append(object.Status.ResourceClaimStatuses,
				corev1.PodResourceClaimStatus{Name: claim, ResourceClaimName: &claim})
		}
		object.Spec.ResourceClaims = append(object.Spec.ResourceClaims, ref)
	}
	for _, c := range containers {
		container := corev1.Container{Name: c.Name}
		for _, ref := range c.Claims {
			claim, request, _ := strings.Cut(ref, "/")
			container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: claim, Request: request})
		}
		container.Resources.Limits = make(corev1.ResourceList)
		if c.MemoryLimit != "" {
			container.Resources.Limits[corev1.ResourceMemory] = resource.MustParse(c.MemoryLimit)
		}
		for size, limit := range c.Hugepages {
			container.Resources.Limits[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size)] = resource.MustParse(limit)
		}
		if c.Init {
			object.Spec.InitContainers = append(object.Spec.InitContainers, container)
		} else {
			object.Spec.Containers = append(object.Spec.Containers, container)
		}
	}
	_, err := n.API.Client.CoreV1().Pods(namespace).Create(n.t.Context(), object, metav1.CreateOptions{})
	require.NoError(n.t, err)
	n.pods[p.UID] = p
	return p
}

// deletePod removes the pod's object.
func (n *Node) deletePod(p *Pod) {
	require.NoError(n.t, n.API.Client.CoreV1().Pods(namespace).Delete(n.t.Context(), p.Name, metav1.DeleteOptions{}))
	delete(n.pods, p.UID)
}
