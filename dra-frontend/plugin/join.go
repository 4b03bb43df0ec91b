// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// joinable tells whether more pods may come to the claim: it is not one pod's
// own, and what it holds can be shared.
func joinable(claim *resourceapi.ResourceClaim, parts []part) bool {
	return len(claim.OwnerReferences) == 0 && !slices.ContainsFunc(parts, func(p part) bool { return p.amounts.Divisible() })
}

// Join ties pods to a prepared claim that were reserved for it since. Kubelet
// prepares a claim once while any pod on the node uses it, so it says nothing
// of those that come later; the claim itself does.
func (d *Driver) Join(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	results, err := ownResults(claim)
	if err != nil || len(results) == 0 {
		return err
	}
	users, err := d.users(ctx, claim)
	if err != nil {
		return err
	}
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	claims, err := d.ledger.Load()
	if err != nil {
		return err
	}
	record, known := claims.Find(string(claim.UID))
	if !known || !record.Joinable || !sameAllocation(record, results) {
		return nil
	}
	late := slices.DeleteFunc(users.records(), func(p contract.PodRecord) bool {
		return slices.ContainsFunc(record.Pods, func(known contract.PodRecord) bool { return known.UID == p.UID })
	})
	if len(late) == 0 {
		return nil
	}
	if err := claims.Blocked(); err != nil {
		return err
	}
	record.Pods = slices.Concat(record.Pods, late)
	state, err := nodestate.Compute(d.inventory.Base, append(claims.Without(record.UID), record))
	if err != nil {
		return err
	}
	if err := d.ledger.Update(record, state); err != nil {
		return err
	}
	d.log.Info("pods joined a claim", zap.String("claim", claim.Namespace+"/"+claim.Name), zap.String("uid", record.UID),
		zap.String("cpus", record.CPUs()), zap.Strings("pods", podsOf(contract.ClaimRecord{Pods: late})))
	return nil
}
