// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin. Kubelet names all
// claims of a pod in one call, except claims that it knows to be prepared.
func (d *Driver) PrepareResourceClaims(ctx context.Context,
	claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	start := time.Now()
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	var own []allocated
	// I8: the choice of CPUs must not depend on the order of claims in the
	// call.
	for _, claim := range slices.SortedFunc(slices.Values(claims), func(a, b *resourceapi.ResourceClaim) int {
		return strings.Compare(string(a.UID), string(b.UID))
	}) {
		if err := givenUp(ctx); err != nil {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		a, err := d.allocation(claim)
		if err != nil || len(a.results) == 0 {
			results[claim.UID] = kubeletplugin.PrepareResult{Err: decision.Because(decision.ReasonClaim, err)}
			continue
		}
		own = append(own, a)
	}
	for i, answer := range d.prepare(ctx, d.read(ctx, own, false), false) {
		results[own[i].object.UID] = answer
	}
	for _, result := range results {
		d.o.Recorder.Prepared(result.Err, time.Since(start))
	}
	return results, nil
}

// givenUp returns an error if kubelet, or the watch of a claim, waits for the answer no longer.
func givenUp(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the call was given up, and nothing was written: %w", context.Cause(ctx))
}

// prepare answers each claim of a batch. With anew, only claims that are
// prepared are decided: kubelet may have released the claim meanwhile.
func (d *Driver) prepare(ctx context.Context, b batch, anew bool) []kubeletplugin.PrepareResult {
	answers := make([]kubeletplugin.PrepareResult, len(b.claims))
	fail := func(err error) []kubeletplugin.PrepareResult {
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	}
	if len(b.claims) == 0 {
		return answers
	}
	leave, err := d.lockDirectory()
	if err != nil {
		return fail(err)
	}
	defer leave()
	// Kubelet may have given this call up and released the claims meanwhile. A
	// claim file that is written after that is never released (I3).
	if err := givenUp(ctx); err != nil {
		return fail(err)
	}
	claims, err := d.o.Ledger.Load()
	if err != nil {
		return fail(decision.Because(decision.ReasonFiles, err))
	}
	in := decision.Input{
		OtherClaims: b.otherClaims, Prepared: claims.Prepared, Err: b.err,
		AllocatableMemory: b.allocatableMemory, AllocatableMemoryErr: b.allocatableMemoryErr, Machine: b.machine,
	}
	var open []int
	for i, a := range b.claims {
		former, known := claims.Find(a.UID)
		standing, err := false, error(nil)
		if known {
			standing, err = d.stands(former, a)
		}
		switch {
		case err != nil:
			answers[i].Err = decision.Because(decision.ReasonPods, err)
			d.logOf(a.Namespace, a.Name, a.UID).Info("claim not prepared", zap.Error(err))
		case standing:
			answers[i].Devices = answer(former)
			d.logOf(a.Namespace, a.Name, a.UID).Debug("claim is already prepared")
		case known || !anew:
			a.FormerCPUs = formerCPUsOf(former, a.results)
			in.Claims = append(in.Claims, a.Claim)
			open = append(open, i)
			continue
		}
		// A claim that is not decided here counts for its containers all the same.
		in.OtherClaims = append(in.OtherClaims, a.Claim)
	}
	if len(open) == 0 {
		return answers
	}
	node, err := d.nodeInput()
	if in.Node = node; err != nil {
		in.Err = err
	}
	for n, outcome := range decision.Decide(in) {
		a := b.claims[open[n]]
		err := outcome.Err
		if err == nil {
			// I4: the CPUs in unreadable files are unknown. An error about the claim itself
			// comes first, because kubelet's next try does not mend the claim.
			err = decision.Because(decision.ReasonFiles, claims.Blocked())
		}
		if err != nil {
			d.logOf(a.Namespace, a.Name, a.UID).Info("claim not prepared", zap.Error(err))
		} else if claims, err = d.storeDecision(ctx, a, outcome.Record, claims, anew); err != nil {
			// A part of the record may be written: the states of the claims after it must count what the files have (I1).
			var loadErr error
			if claims, loadErr = d.o.Ledger.Load(); loadErr != nil {
				return fail(decision.Because(decision.ReasonFiles, errors.Join(err, loadErr)))
			}
		}
		if answers[open[n]].Err = err; err == nil {
			answers[open[n]].Devices = answer(outcome.Record)
		}
	}
	return answers
}

// storeDecision writes the record of a decided claim beside the other claims, and returns
// the claims with it.
func (d *Driver) storeDecision(ctx context.Context, a allocated, record contract.ClaimRecord,
	claims ledger.Claims, anew bool) (ledger.Claims, error) {
	log := d.logOf(a.Namespace, a.Name, a.UID)
	former, known := claims.Find(record.UID)
	others := claims.Without(record.UID)
	// I1: the record of another claim of this call may not have been written, and
	// its former record holds its CPUs.
	for _, other := range others {
		if both := record.CPUs().Intersection(other.CPUs()); !both.IsEmpty() {
			return claims, decision.Because(decision.ReasonCPUsHeld, fmt.Errorf(
				"claim %s/%s holds CPUs %s until its record is replaced: kubelet tries again",
				other.Namespace, other.Name, both))
		}
	}
	if known {
		log.Info("claim is decided anew, its former pods have gone", zap.Stringer("cpus", former.CPUs()),
			zap.Strings("zones", zonesOf(former)), zap.Strings("pods", podsOf(former)))
	}
	if len(a.NotPods) > 0 {
		log.Warn("the claim is also reserved for an object that is no pod: pods that use the claim through this object do not start",
			zap.String("for", contract.Few(a.NotPods, 1)))
	}
	if anew {
		// The metadata is written before the decision: a container that starts
		// must not read the values of another pod.
		if err := d.o.Metadata(ctx, a.object, answer(record)); err != nil {
			log.Error("claim not decided anew", zap.Error(err))
			return claims, err
		}
	}
	if err := d.write(former, record, others); err != nil {
		log.Error("claim not prepared", zap.Error(err))
		if !errors.Is(err, nodestate.ErrNoSharedPool) {
			err = decision.Because(decision.ReasonFiles, err)
		}
		return claims, err
	}
	claims = claims.With(record)
	d.count(claims.Prepared)
	log.Info("claim prepared", zap.Stringer("cpus", record.CPUs()),
		zap.Strings("zones", zonesOf(record)), zap.Strings("pods", podsOf(record)))
	return claims, nil
}

func (d *Driver) logOf(namespace, name, uid string) *zap.Logger {
	return d.o.Log.With(zap.String("claim", namespace+"/"+name), zap.String("uid", uid))
}

// write writes a decided claim beside the other claims. former is the record
// that it replaces, the zero value for none.
func (d *Driver) write(former, record contract.ClaimRecord, others []contract.ClaimRecord) error {
	if former.UID != "" {
		return d.replace(former, record, others)
	}
	state, err := nodestate.Compute(d.o.Inventory.Base, append(slices.Clone(others), record))
	if err != nil {
		return err
	}
	if err := d.o.Ledger.Add(record, state); err != nil {
		_, reconcileErr := d.reconcile()
		return errors.Join(err, reconcileErr)
	}
	return nil
}

// answer returns the devices for kubelet. They depend on the record alone (I8).
func answer(record contract.ClaimRecord) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, len(record.Results))
	for i, r := range record.Results {
		devices[i] = kubeletplugin.Device{
			Requests:     []string{r.Request},
			PoolName:     r.Pool,
			DeviceName:   r.Device,
			CDIDeviceIDs: []string{contract.Key{ClaimUID: record.UID, Index: i}.CDIDevice()},
			Metadata:     metadata(r),
		}
		if r.ShareID != "" {
			share := types.UID(r.ShareID)
			devices[i].ShareID = &share
		}
	}
	return devices
}

func zonesOf(record contract.ClaimRecord) []string {
	var zones []string
	for _, r := range record.Results {
		zones = append(zones, r.Device)
	}
	return zones
}

func podsOf(record contract.ClaimRecord) []string {
	var pods []string
	for _, p := range record.Pods {
		pods = append(pods, p.UID)
	}
	return pods
}
