// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/resourceslices"
)

// scheduler is the part of kube-scheduler that allocates claims, with one node.
type scheduler struct {
	node *corev1.Node
	// devices are this driver's, slices are of all drivers.
	devices   []resourceapi.Device
	others    []*resourceapi.ResourceSlice
	slices    []*resourceapi.ResourceSlice
	allocator allocation.Allocator
	// results are the results of all allocated claims.
	results []resourceapi.DeviceRequestAllocationResult
}

func newScheduler(classes allocation.Classes, others OtherDrivers) *scheduler {
	return &scheduler{
		node:      &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}}},
		allocator: allocation.New(classes),
		others:    others.slices,
	}
}

// publish replaces the devices to allocate from.
func (s *scheduler) publish(devices []resourceapi.Device) {
	s.devices, s.slices = devices, slices.Clone(s.others)
	for name, pool := range resourceslices.DriverResources(nodeName, devices).Pools {
		for i, slice := range pool.Slices {
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", nodeName, i)},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: kubelet.DriverName, NodeName: new(nodeName), Devices: slice.Devices,
					Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
				},
			})
		}
	}
}

// schedule allocates the pod's claims that have no allocation, all or none. If
// it cannot, reason says why.
func (s *scheduler) schedule(ctx context.Context, claims []*resourceapi.ResourceClaim) (reason string, err error) {
	todo := slices.DeleteFunc(slices.Clone(claims), func(c *resourceapi.ResourceClaim) bool { return c.Status.Allocation != nil })
	if len(todo) == 0 {
		return "", nil
	}
	free, err := s.allocator.Free(ctx, s.slices, s.results)
	if err != nil {
		return "", err
	}
	allocations, err := free.Allocate(ctx, s.node, todo)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		// Wrong selectors and unknown classes: kube-scheduler gives the same
		// message in the pod's events.
		return err.Error(), nil
	case len(allocations) == 0:
		return s.explain(todo), nil
	}
	for i, c := range todo {
		c.Status.Allocation = &allocations[i]
		s.results = append(s.results, allocations[i].Devices.Results...)
	}
	return "", nil
}

// used returns the amount of a device's capacity that claims consume.
func (s *scheduler) used(device string, name resourceapi.QualifiedName) resource.Quantity {
	var sum resource.Quantity
	for _, r := range s.results {
		if q, consumed := r.ConsumedCapacity[name]; consumed && r.Driver == kubelet.DriverName && r.Device == device {
			sum.Add(q)
		}
	}
	return sum
}

// capacities returns the capacities of a published device.
func (s *scheduler) capacities(device string) map[resourceapi.QualifiedName]resourceapi.DeviceCapacity {
	for _, d := range s.devices {
		if d.Name == device {
			return d.Capacity
		}
	}
	return nil
}

// explain returns the reason that the allocator does not give: the amounts that
// no zone has free.
func (s *scheduler) explain(claims []*resourceapi.ResourceClaim) string {
	const what = "cannot allocate all claims"
	var details []string
	for _, c := range claims {
		for _, r := range c.Spec.Devices.Requests {
			if r.Exactly != nil && r.Exactly.Capacity != nil {
				for _, lack := range s.lacks(r.Exactly.Capacity.Requests) {
					lack = fmt.Sprintf("request %s: %s", r.Name, lack)
					if len(claims) > 1 {
						lack = fmt.Sprintf("claim %s, %s", c.Name, lack)
					}
					details = append(details, lack)
				}
			}
		}
	}
	if len(details) == 0 {
		return what + ": no zone that the selectors and constraints allow has all of the amounts free at once"
	}
	return what + ": " + strings.Join(details, "; ")
}

// lacks names the wanted amounts that no device has free.
func (s *scheduler) lacks(wanted map[resourceapi.QualifiedName]resource.Quantity) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want := wanted[name]
		most, where := resource.Quantity{}, ""
		for _, d := range s.devices {
			capacity, has := d.Capacity[name]
			if !has {
				continue
			}
			free, used := capacity.Value.DeepCopy(), s.used(d.Name, name)
			free.Sub(used)
			if where == "" || free.Cmp(most) > 0 {
				most, where = free, d.Name
			}
		}
		switch {
		case where == "":
			out = append(out, fmt.Sprintf("no zone has a capacity %q", name))
		case want.Cmp(most) > 0:
			out = append(out, fmt.Sprintf("%s %s wanted, at most %s free (%s)", name, want.String(), most.String(), where))
		}
	}
	return out
}
