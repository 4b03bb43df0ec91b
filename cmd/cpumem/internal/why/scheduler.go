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

// free returns what is free in the cluster.
func free(ctx context.Context, o cluster.Objects) (allocation.Free, error) {
	classes := make(allocation.Classes, len(o.Classes))
	for _, c := range o.Classes {
		classes[c.Name] = c
	}
	var taken []resourceapi.DeviceRequestAllocationResult
	for _, c := range o.Claims {
		if c.Status.Allocation == nil {
			continue
		}
		for _, r := range c.Status.Allocation.Devices.Results {
			// Access of an administrator takes nothing.
			if r.AdminAccess == nil || !*r.AdminAccess {
				taken = append(taken, r)
			}
		}
	}
	return allocation.New(classes).Free(ctx, o.Slices, taken)
}

// Allocate allocates the claims on the node, all of them or none.
func Allocate(ctx context.Context, o cluster.Objects, node *corev1.Node, claims []*resourceapi.ResourceClaim) error {
	free, err := free(ctx, o)
	if err != nil {
		return err
	}
	allocations, err := free.Allocate(ctx, node, claims)
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
