// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// addClaim does what the API server does with a new claim.
func (b *builder) addClaim(c *resourceapi.ResourceClaim) error {
	id := key{c.Namespace, c.Name}
	if b.claims[id] != nil {
		return fmt.Errorf("%s is there twice", identity(kindClaim, c.Namespace, c.Name))
	}
	requests := c.Spec.Devices.Requests
	if len(requests) > resourceapi.DeviceRequestsMaxSize {
		return fmt.Errorf("%s: %d requests, want at most %d",
			identity(kindClaim, c.Namespace, c.Name), len(requests), resourceapi.DeviceRequestsMaxSize)
	}
	names := make(map[string]bool)
	for i := range requests {
		if err := admit(&requests[i], names); err != nil {
			return fmt.Errorf("%s: spec.devices.requests[%d]: %w", identity(kindClaim, c.Namespace, c.Name), i, err)
		}
	}
	c.UID, c.Status = uid("claim", id), resourceapi.ResourceClaimStatus{}
	b.claims[id] = c
	return nil
}

// admit sets defaults and makes the checks that the allocator relies on.
func admit(r *resourceapi.DeviceRequest, names map[string]bool) error {
	if err := admitName(r.Name, names); err != nil {
		return err
	}
	if (r.Exactly == nil) == (len(r.FirstAvailable) == 0) {
		return fmt.Errorf("%s: want either exactly or firstAvailable", r.Name)
	}
	if e := r.Exactly; e != nil {
		return admitAmounts(r.Name, &e.AllocationMode, &e.Count, e.Capacity)
	}
	if len(r.FirstAvailable) > resourceapi.FirstAvailableDeviceRequestMaxSize {
		return fmt.Errorf("%s: firstAvailable of %d, want at most %d",
			r.Name, len(r.FirstAvailable), resourceapi.FirstAvailableDeviceRequestMaxSize)
	}
	subrequests := make(map[string]bool)
	for i := range r.FirstAvailable {
		s := &r.FirstAvailable[i]
		if err := admitName(s.Name, subrequests); err != nil {
			return fmt.Errorf("%s: firstAvailable[%d]: %w", r.Name, i, err)
		}
		if err := admitAmounts(r.Name+"/"+s.Name, &s.AllocationMode, &s.Count, s.Capacity); err != nil {
			return err
		}
	}
	return nil
}

func admitName(name string, known map[string]bool) error {
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return fmt.Errorf("name %q: %s", name, problems[0])
	}
	if known[name] {
		return fmt.Errorf("name %q is there twice", name)
	}
	known[name] = true
	return nil
}

func admitAmounts(name string, mode *resourceapi.DeviceAllocationMode, count *int64, capacity *resourceapi.CapacityRequirements) error {
	if *mode == "" {
		*mode = resourceapi.DeviceAllocationModeExactCount
	}
	if *mode == resourceapi.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
	if *count < 0 {
		return fmt.Errorf("%s: count %d, want 1 or more", name, *count)
	}
	if capacity != nil {
		for c, q := range capacity.Requests {
			if q.Sign() < 0 {
				return fmt.Errorf("%s: capacity %s of %s, want 0 or more", name, c, q.String())
			}
		}
	}
	return nil
}
