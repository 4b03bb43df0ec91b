// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// joinable tells whether more pods may come to the claim: it is not one pod's
// own, made from a template, and what it holds can be shared.
func joinable(claim *resourceapi.ResourceClaim, parts []part) bool {
	return !ownedByPod(claim) && !slices.ContainsFunc(parts, func(p part) bool { return p.amounts.Divisible() })
}

// ownedByPod tells whether the claim was made for a pod, from a template.
func ownedByPod(claim *resourceapi.ResourceClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}

// Join brings a prepared claim up to its reservations. Kubelet prepares a claim
// once while any pod on the node uses it, so it says nothing of those that come
// later; the claim itself does. What can be shared they share. What cannot is
// decided anew, when nothing runs any more of the pods that had it.
func (d *Driver) Join(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	results, err := ownResults(claim)
	if err != nil || len(results) == 0 {
		return err
	}
	if slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Pool != d.pool }) {
		// It was allocated to another node meanwhile.
		return nil
	}
	claims, err := d.Prepared()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(claims, func(r contract.ClaimRecord) bool { return r.UID == string(claim.UID) })
	if i < 0 {
		return nil
	}
	record := claims[i]
	late := claim.DeepCopy()
	late.Status.ReservedFor = slices.DeleteFunc(late.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool {
		return tied(record.Pods, string(c.UID))
	})
	if len(late.Status.ReservedFor) == 0 {
		return nil
	}
	if record.Joinable && sameAllocation(record, results) {
		return d.tie(ctx, claim, late, results)
	}
	if anyReserved(claim, record.Pods) {
		return nil
	}
	return d.again(ctx, claim, record, results)
}

// again decides a prepared claim anew for the pods that have it now.
func (d *Driver) again(ctx context.Context, claim *resourceapi.ResourceClaim, record contract.ClaimRecord,
	results []resourceapi.DeviceRequestAllocationResult) error {
	if err := sameDevices(record, results); err != nil {
		return err
	}
	call := d.call(ctx, []*resourceapi.ResourceClaim{claim}, everyName)
	call.again = true
	users, err := call.users[claim.UID]()
	if err != nil || len(users.pods) == 0 {
		return err
	}
	_, err = d.prepare(ctx, claim, call)
	return err
}

// tie ties the pods that the late reservations are for to a claim that can be
// shared.
func (d *Driver) tie(ctx context.Context, claim, late *resourceapi.ResourceClaim,
	results []resourceapi.DeviceRequestAllocationResult) error {
	// As in prepare, nobody waits for the API server inside the lock.
	users, err := d.users(ctx, late)
	if err != nil || len(users.pods) == 0 {
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
	if err := claims.Blocked(); err != nil {
		return err
	}
	record, known := claims.Find(string(claim.UID))
	if !known || !record.Joinable || !sameAllocation(record, results) {
		return nil
	}
	// Those that are not reserved any more and have ended make room: a claim that
	// is always in use would collect them without end.
	added := users.records()
	record.Pods = slices.DeleteFunc(slices.Clone(record.Pods), func(p contract.PodRecord) bool {
		return tied(added, p.UID) || !reserved(claim, p.UID) && d.ended(p) == nil
	})
	record.Pods = append(record.Pods, added...)
	state, err := nodestate.Compute(d.inventory.Base, append(claims.Without(record.UID), record))
	if err != nil {
		return err
	}
	if err := d.ledger.Update(record, state); err != nil {
		return err
	}
	d.log.Info("pods joined a claim", zap.String("claim", claim.Namespace+"/"+claim.Name), zap.String("uid", record.UID),
		zap.String("cpus", record.CPUs()), zap.Strings("pods", podsOf(contract.ClaimRecord{Pods: added})))
	return nil
}

func tied(pods []contract.PodRecord, uid string) bool {
	return slices.ContainsFunc(pods, func(p contract.PodRecord) bool { return p.UID == uid })
}

func reserved(claim *resourceapi.ResourceClaim, uid string) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool { return string(c.UID) == uid })
}
