// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// A decision of the present allocation stands while a pod that it was made for is a
// consumer of the claim or may run, and longer for a claim that pods can join. A
// decision of a former allocation stands for no pod: it is replaced when its pods
// have ended. Otherwise the claim is decided anew for its present consumers: kubelet
// keeps a claim prepared from one pod to the next, and the scheduler may have
// allocated the claim anew after its pods were deleted by force.

// stands reports whether the record is the answer for the claim. The error says
// why a new decision has to wait.
func (d *Driver) stands(record contract.ClaimRecord, a allocated) (bool, error) {
	// I8: the first answer stands, whatever else has changed. Join adds pods to
	// a claim that pods can share.
	same := decision.SameAllocation(record, a.results)
	if same && (record.Joinable || anyReserved(a.object, record.Pods)) {
		return true, nil
	}
	for _, p := range record.Pods {
		if reserved(a.object, p.UID) {
			continue
		}
		if err := d.ended(p); err != nil {
			return false, fmt.Errorf("what it has is still that of an earlier pod: %w", err)
		}
	}
	return false, nil
}

// ended returns nil if the pod has no cgroup. A pod that is deleted by force
// runs on without an object and without a reservation (I1).
func (d *Driver) ended(p contract.PodRecord) error {
	left, err := d.cgroups.Has(p)
	if err != nil {
		return fmt.Errorf("it is not known whether pod %s has ended: %w", p.UID, err)
	}
	if left {
		return fmt.Errorf("pod %s has not ended on this node: its cgroup is there", p.UID)
	}
	return nil
}

// Runs reports whether a pod of the record has not ended. An error means that
// this is not known; the result is true then.
func (d *Driver) Runs(record contract.ClaimRecord) (bool, error) {
	for _, p := range record.Pods {
		if left, err := d.cgroups.Has(p); left || err != nil {
			return true, err
		}
	}
	return false, nil
}

// Release releases an orphan if its pods have ended (I1): kubelet has forgotten
// the claim and does not release it.
func (d *Driver) Release(record contract.ClaimRecord) error {
	for _, p := range record.Pods {
		if err := d.ended(p); err != nil {
			return err
		}
	}
	err := d.unprepare(context.Background(), kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: record.Namespace, Name: record.Name}, UID: types.UID(record.UID),
	})
	d.recorder.Unprepared(err)
	return err
}

func anyReserved(claim *resourceapi.ResourceClaim, pods []contract.PodRecord) bool {
	return slices.ContainsFunc(pods, func(p contract.PodRecord) bool { return reserved(claim, p.UID) })
}

// keptCPUs returns the CPUs of each result of the record, or nil if the results
// are another allocation.
func keptCPUs(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) []contract.CPUSet {
	if !decision.SameAllocation(record, results) {
		return nil
	}
	var kept []contract.CPUSet
	for _, r := range record.Results {
		kept = append(kept, r.Decision.CPUs)
	}
	return kept
}

// sameDevices returns an error if the results have other requests than the
// record. While the claim is prepared, kubelet keeps the CDI devices that it
// got for each request.
func sameDevices(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) error {
	request := func(name string) string {
		base, _, _ := strings.Cut(name, "/")
		return base
	}
	if !slices.EqualFunc(record.Results, results, func(was contract.ResultRecord, is resourceapi.DeviceRequestAllocationResult) bool {
		return request(was.Request) == request(is.Request)
	}) {
		return errors.New("it was allocated anew with other results while kubelet keeps it prepared with those before: " +
			"delete the pods that have it, so that it is released")
	}
	return nil
}

// replace writes a new decision for a claim when its pods have ended. While the
// claim file is replaced, the pool lacks the CPUs that each of the two decisions
// takes out of it (I1), unless the pool would be empty. The claim has no pods meanwhile: a container
// could get the former values (I5). After a crash between two writes Reconcile
// computes the node state from the claim file that exists (I4).
func (d *Driver) replace(was, is contract.ClaimRecord, others []contract.ClaimRecord) error {
	after, err := nodestate.Compute(d.inventory.Base, append(slices.Clone(others), is))
	if err != nil {
		return err
	}
	idle := is
	was.Pods, idle.Pods = nil, nil
	between, err := nodestate.Compute(d.inventory.Base, append(slices.Clone(others), was, idle))
	if errors.Is(err, nodestate.ErrNoSharedPool) {
		// I7: the pool needs a CPU of the former decision. No container can get
		// this CPU from the former claim file, because its pods have ended.
		between, err = nodestate.Compute(d.inventory.Base, append(slices.Clone(others), idle))
	}
	if err != nil {
		return err
	}
	if err := d.ledger.Replace(is, between, after); err != nil {
		_, reconcileErr := d.reconcile()
		return errors.Join(err, reconcileErr)
	}
	return nil
}
