// SPDX-License-Identifier: Apache-2.0

// Package allocation asks the scheduler's own allocator where claims can go. The
// simulation and the explanation of pending pods decide with it.
package allocation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Selectors are the features of CEL selectors in Kubernetes 1.37, with functions of
// lists: an API server without them refuses the claims that use them.
func Selectors() cel.Features {
	return cel.Features{EnableConsumableCapacity: true, EnableListTypeAttributes: true}
}

// features returns the features of Kubernetes 1.37. An API server that keeps lists as
// attributes shows that DRAListTypeAttributes is on: the scheduler then uses another allocator.
func features(all []*resourceapi.ResourceSlice) structured.Features {
	return structured.Features{
		AdminAccess: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
		FractionalCapacityRange: true, PartitionableDevices: true, PrioritizedList: true,
		ListTypeAttributes: slices.ContainsFunc(all, hasLists),
	}
}

func hasLists(slice *resourceapi.ResourceSlice) bool {
	for _, d := range slice.Spec.Devices {
		for _, a := range d.Attributes {
			if a.IntValues != nil || a.StringValues != nil || a.BoolValues != nil || a.VersionValues != nil {
				return true
			}
		}
	}
	return false
}

// celCacheSize is the number of compiled selectors that are kept.
const celCacheSize = 64

// Allocator makes allocations of claims for devices of the classes.
type Allocator struct {
	classes Classes
	cache   *cel.Cache
}

// New returns an allocator.
func New(classes Classes) Allocator {
	return Allocator{classes: classes, cache: cel.NewCache(celCacheSize, Selectors())}
}

// Free returns what is free of the published devices. taken are the results of all allocated claims. It serves all nodes: making
// it takes a time that grows with the cluster.
func (a Allocator) Free(
	ctx context.Context, published []*resourceapi.ResourceSlice, taken []resourceapi.DeviceRequestAllocationResult,
) (Free, error) {
	allocator, err := structured.NewAllocator(ctx, features(published), state(taken), a.classes, published, a.cache)
	return Free{allocator}, err
}

// Free are devices and amounts that no claim has.
type Free struct {
	allocator structured.Allocator
}

// Allocate returns an allocation for each of the claims on the node, or nothing if the
// node cannot serve all of them. The error is about the claims, in the words that the scheduler uses in the pod's events.
func (f Free) Allocate(
	ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim,
) ([]resourceapi.AllocationResult, error) {
	allocations, err := f.allocator.Allocate(ctx, node, claims)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return allocations, err
}

// state returns the devices and amounts that are in use.
func state(taken []resourceapi.DeviceRequestAllocationResult) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, r := range taken {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	return state
}

// Classes are DeviceClasses by name.
type Classes map[string]*resourceapi.DeviceClass

// Get implements structured.DeviceClassLister.
func (c Classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if class, found := c[name]; found {
		return class, nil
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
}

// List implements structured.DeviceClassLister.
func (c Classes) List() ([]*resourceapi.DeviceClass, error) {
	out := make([]*resourceapi.DeviceClass, 0, len(c))
	for _, class := range c {
		out = append(out, class)
	}
	return out, nil
}
