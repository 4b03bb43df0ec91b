// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// Join brings a prepared claim up to its consumers. Kubelet prepares a claim
// once while pods on the node use it, and does not call for a pod that comes
// later; the claim's status names that pod. Pods are added to a claim that they
// can share. A claim that pods cannot share is decided anew when its former
// pods have ended. claim needs no parameters: Join reads the whole claim if it decides the claim anew.
func (d *Driver) Join(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	results, err := ownResults(claim)
	if err != nil || d.isElsewhere(results) {
		return err
	}
	record, prepared, err := d.record(string(claim.UID))
	if err != nil || !prepared {
		return err
	}
	late := claim.DeepCopy()
	late.Status.ReservedFor = decision.Late(claim, record)
	if len(late.Status.ReservedFor) == 0 {
		return nil
	}
	if record.Joinable && decision.SameAllocation(record, results) {
		return d.join(ctx, claim, late, results)
	}
	if anyConsumer(claim, record.Pods) {
		return nil
	}
	if err := sameDevices(record, results); err != nil {
		return err
	}
	return d.decideAnew(ctx, claim)
}

// isElsewhere reports whether the results are of another node, or there are none: the claim was allocated again meanwhile.
func (d *Driver) isElsewhere(results []resourceapi.DeviceRequestAllocationResult) bool {
	return len(results) == 0 || slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Pool != d.o.SlicePool
	})
}

// record returns the record of a claim. The bool reports whether the claim is prepared and its file is readable. record
// does not take the lock of the directory: Join is called for many claims at once, and each call would wait for all
// writes before it. join and prepare read the claim again under the lock.
func (d *Driver) record(uid string) (contract.ClaimRecord, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.o.Ledger.Record(uid)
}

// decideAnew decides a prepared claim anew for its present consumers. shown has the claim's name.
func (d *Driver) decideAnew(ctx context.Context, shown *resourceapi.ResourceClaim) error {
	claim, err := d.o.Claims.Claim(ctx, shown.Namespace, shown.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read claim %s/%s: %w", shown.Namespace, shown.Name, err)
	}
	a, err := d.allocation(claim)
	if err != nil || d.isElsewhere(a.results) {
		return decision.Because(decision.ReasonClaim, err)
	}
	b := d.read(ctx, []allocated{a}, true)
	if a = b.claims[0]; a.PodsErr != nil || len(a.Pods) == 0 {
		return a.PodsErr
	}
	return d.prepare(ctx, b, true)[0].Err
}

// join adds consumers to a claim that pods can share. late is the claim with only
// these consumers.
func (d *Driver) join(ctx context.Context, claim, late *resourceapi.ResourceClaim,
	results []resourceapi.DeviceRequestAllocationResult) error {
	// As in prepare, the API server is read before the lock is taken.
	joined := decision.Read(late, results, d.o.Settings)
	if newPodReader(d.o.Pods).readConsumers(ctx, late, &joined); joined.PodsErr != nil || len(joined.Pods) == 0 {
		return joined.PodsErr
	}
	leave, err := d.lockDirectory()
	if err != nil {
		return err
	}
	defer leave()
	claims, err := d.o.Ledger.Load()
	if err != nil {
		return err
	}
	if err := claims.Blocked(); err != nil {
		return err
	}
	record, known := claims.Find(string(claim.UID))
	if !known || !record.Joinable || !decision.SameAllocation(record, results) {
		return nil
	}
	// The record counts, not today's configuration: prepared claims keep their values.
	var lifting []string
	for _, r := range record.Results {
		if r.Decision.Quota == contract.QuotaNone {
			lifting = append(lifting, r.Request)
		}
	}
	added := joined.PodRecords(lifting)
	// Pods that have ended and are not consumers are removed: a claim that is
	// always in use would collect pods without end.
	record.Pods = slices.DeleteFunc(slices.Clone(record.Pods), func(p contract.PodRecord) bool {
		return hasPod(added, p.UID) || !isConsumer(claim, p.UID) && d.checkEnded(p) == nil
	})
	record.Pods = append(record.Pods, added...)
	state, err := nodestate.Compute(d.o.Inventory.Base, append(claims.Without(record.UID), record))
	if err != nil {
		return err
	}
	if err := d.o.Ledger.Update(record, state); err != nil {
		return err
	}
	d.o.Log.Info("pods joined a claim", zap.String("claim", claim.Namespace+"/"+claim.Name), zap.String("uid", record.UID),
		zap.Stringer("cpus", record.CPUs()), zap.Strings("pods", podsOf(contract.ClaimRecord{Pods: added})))
	return nil
}

func hasPod(pods []contract.PodRecord, uid string) bool {
	return slices.ContainsFunc(pods, func(p contract.PodRecord) bool { return p.UID == uid })
}

func isConsumer(claim *resourceapi.ResourceClaim, uid string) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool {
		return string(c.UID) == uid
	})
}
