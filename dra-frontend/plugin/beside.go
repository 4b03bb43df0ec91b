// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// beside returns the other claims of the pods that use the claims of a call.
// Values depend on all claims of a pod, and kubelet does not ask for claims
// that it knows to be prepared. wanted selects the names to read. Claims that
// are gone or not allocated are left out.
func (d *Driver) beside(ctx context.Context, claims []*resourceapi.ResourceClaim, read map[types.UID]func() (users, error),
	wanted func() (func(types.NamespacedName) bool, error)) ([]*resourceapi.ResourceClaim, error) {
	names := otherNames(claims, read)
	if len(names) == 0 {
		return nil, nil
	}
	want, err := wanted()
	if err != nil {
		return nil, err
	}
	var out []*resourceapi.ResourceClaim
	for _, name := range names {
		if !want(name) {
			continue
		}
		claim, err := d.claims.Claim(ctx, name.Namespace, name.Name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read claim %s, which a pod has as well: %w", name, err)
		case claim.Status.Allocation != nil:
			out = append(out, claim)
		}
	}
	return out, nil
}

// otherNames returns the names of the other claims of these pods.
func otherNames(claims []*resourceapi.ResourceClaim, read map[types.UID]func() (users, error)) []types.NamespacedName {
	known := make(map[types.NamespacedName]bool)
	for _, claim := range claims {
		known[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = true
	}
	var out []types.NamespacedName
	for _, claim := range claims {
		users, err := read[claim.UID]()
		if err != nil {
			continue // the claim is refused with this error
		}
		for _, p := range users.pods {
			for _, c := range p.Containers {
				for _, ref := range c.Claims {
					name := types.NamespacedName{Namespace: claim.Namespace, Name: ref.Claim}
					if !known[name] {
						known[name] = true
						out = append(out, name)
					}
				}
			}
		}
	}
	return out
}

// preparedNames selects the claims that are prepared on this node.
func (d *Driver) preparedNames() (func(types.NamespacedName) bool, error) {
	records, err := d.Prepared()
	names := make(map[types.NamespacedName]bool)
	for _, r := range records {
		names[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = true
	}
	return func(name types.NamespacedName) bool { return names[name] }, err
}

// everyName selects all claims.
func everyName() (func(types.NamespacedName) bool, error) {
	return func(types.NamespacedName) bool { return true }, nil
}
