// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/allocation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/cluster"
)

// scheduler is the part of kube-scheduler that allocates claims.
type scheduler struct {
	allocator allocation.Allocator
	slices    []*resourceapi.ResourceSlice
	taken     []resourceapi.DeviceRequestAllocationResult
}

func newScheduler(o cluster.Objects) scheduler {
	classes := make(allocation.Classes, len(o.Classes))
	for _, c := range o.Classes {
		classes[c.Name] = c
	}
	s := scheduler{allocator: allocation.New(classes), slices: o.Slices}
	for _, c := range o.Claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			// Access of an administrator takes nothing.
			if r.AdminAccess == nil || !*r.AdminAccess {
				s.taken = append(s.taken, r)
			}
		}
	}
	return s
}

// Allocate allocates the claims on the node, all of them or none.
func Allocate(ctx context.Context, o cluster.Objects, node *corev1.Node, claims []*resourceapi.ResourceClaim) error {
	s := newScheduler(o)
	allocations, err := s.allocator.Allocate(ctx, node, s.slices, s.taken, claims)
	if err == nil && len(allocations) == 0 {
		err = errors.New("the claims do not fit")
	}
	if err != nil {
		return err
	}
	for i, c := range claims {
		c.Status.Allocation = &allocations[i]
	}
	return nil
}

// fits reports whether the node can serve all of the claims at this moment.
func (s scheduler) fits(ctx context.Context, node *corev1.Node, claims []*resourceapi.ResourceClaim) (bool, error) {
	allocations, err := s.allocator.Allocate(ctx, node, s.slices, s.taken, claims)
	return len(allocations) > 0, err
}
