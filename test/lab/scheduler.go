// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// classes has the chart's DeviceClass, with the parameters of the node's Options.
type classes struct{ parameters string }

// Get implements structured.DeviceClassLister.
func (c classes) Get(string) (*resourceapi.DeviceClass, error) {
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kubelet.DriverName}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: resourceslices.ClassSelector(topology.MemoryDRAM)},
		}},
	}}
	if c.parameters != "" {
		class.Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: configuration(c.parameters)}}
	}
	return class, nil
}

// configuration returns claim parameters with these JSON members.
func configuration(members string) resourceapi.DeviceConfiguration {
	return resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
		Driver:     kubelet.DriverName,
		Parameters: kruntime.RawExtension{Raw: []byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + members + `}`)},
	}}
}

// List implements structured.DeviceClassLister.
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	class, err := c.Get(kubelet.DriverName)
	return []*resourceapi.DeviceClass{class}, err
}

// features are the allocator's features in Kubernetes 1.37. They select the
// "incubating" allocator.
var features = structured.Features{
	AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
	FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
}

// Allocate schedules a pod: it allocates the pod's claims from the published slices
// and reserves them for the pod. It reports whether the claims fit.
func (n *Node) Allocate(p *Pod) bool {
	n.t.Helper()
	var todo []*resourceapi.ResourceClaim
	for _, name := range p.Claims() {
		if c := n.API.ReadClaim(name); c.Status.Allocation == nil {
			todo = append(todo, c)
		}
	}
	if len(todo) > 0 {
		ctx := n.t.Context()
		allocator, err := structured.NewAllocator(ctx, features, n.allocated(), classes{n.o.Class}, n.API.Slices(),
			cel.NewCache(8, cel.Features{EnableConsumableCapacity: true}))
		require.NoError(n.t, err)
		results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}, todo)
		require.NoError(n.t, err)
		if len(results) == 0 {
			return false
		}
		for i, c := range todo {
			n.API.UpdateClaim(c.Name, func(c *resourceapi.ResourceClaim) { c.Status.Allocation = &results[i] })
		}
	}
	for _, name := range p.Claims() {
		n.Reserve(name, p)
	}
	return true
}

// Reserve makes a pod a consumer of a claim.
func (n *Node) Reserve(claim string, p *Pod) {
	n.API.UpdateClaim(claim, func(c *resourceapi.ResourceClaim) {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: types.UID(p.UID)})
	})
}

// allocated returns the devices and amounts in use, from the claims' status.
func (n *Node) allocated() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	list, err := n.API.Client.ResourceV1().ResourceClaims(namespace).List(n.t.Context(), metav1.ListOptions{})
	require.NoError(n.t, err)
	for _, c := range list.Items {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
			if r.ShareID == nil {
				state.AllocatedDevices.Insert(id)
				continue
			}
			state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
			state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
	return state
}

// Unreserve removes a consumer that has ended, as the claim controller does. A
// claim without consumers loses its allocation.
func (n *Node) Unreserve(claim string, p *Pod) {
	n.API.UpdateClaim(claim, func(c *resourceapi.ResourceClaim) {
		c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
			return string(r.UID) == p.UID
		})
		if len(c.Status.ReservedFor) == 0 {
			c.Status.Allocation = nil
		}
	})
}
