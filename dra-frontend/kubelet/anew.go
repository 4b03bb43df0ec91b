// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

// A decision stands if the allocation is the same and one of its pods is a consumer.
// The decision of a joinable claim stands while the allocation is the same. All other
// claims are decided anew when the pods that are no longer consumers have ended.
// Kubelet keeps a claim prepared from one pod to the next, and the scheduler may
// allocate the claim anew after its pods were deleted by force.

// stands reports whether the record is the answer for the claim. The error says
// why a new decision has to wait, or cannot be made.
func (d *Driver) stands(record contract.ClaimRecord, a allocated) (bool, error) {
	// I8: the first answer stands, whatever else has changed. Join adds pods to a
	// joinable claim.
	same := decision.SameAllocation(record, a.results)
	if same && (record.Joinable || anyConsumer(a.object, record.Pods)) {
		return true, nil
	}
	for _, p := range record.Pods {
		if isConsumer(a.object, p.UID) {
			continue
		}
		if err := d.checkEnded(p); err != nil {
			return false, fmt.Errorf("the claim waits until an earlier pod has ended: %w", err)
		}
	}
	return false, sameDevices(record, a.results)
}

// checkEnded returns an error unless the pod has ended, which its missing cgroup
// shows. A pod that is deleted by force runs on without an object and without a
// reservation (I1).
func (d *Driver) checkEnded(p contract.PodRecord) error {
	hasCgroup, err := d.o.Cgroups.Has(p)
	if err != nil {
		return fmt.Errorf("it is not known whether pod %s has ended: %w", p.UID, err)
	}
	if hasCgroup {
		return fmt.Errorf("pod %s has not ended on this node: its cgroup is there", p.UID)
	}
	return nil
}

// MayRun reports whether a pod of the record has not ended. An error means that
// this is not known; the result is true then.
func (d *Driver) MayRun(record contract.ClaimRecord) (bool, error) {
	for _, p := range record.Pods {
		if hasCgroup, err := d.o.Cgroups.Has(p); hasCgroup || err != nil {
			return true, err
		}
	}
	return false, nil
}

// ReleaseOrphan releases an orphan if its pods have ended (I1): kubelet has forgotten
// the claim and does not release it. A claim that was prepared for other pods meanwhile stays.
// alsoRemove removes what else belongs to the claim, before its file: after an error the claim
// is still found.
func (d *Driver) ReleaseOrphan(record contract.ClaimRecord, alsoRemove func() error) error {
	for _, p := range record.Pods {
		if err := d.checkEnded(p); err != nil {
			return err
		}
	}
	object := kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: record.Namespace, Name: record.Name}, UID: types.UID(record.UID),
	}
	leave, err := d.lockDirectory()
	if err != nil {
		return err
	}
	defer leave()
	present, prepared, err := d.o.Ledger.Record(record.UID)
	if err != nil {
		return err
	}
	if !prepared || !reflect.DeepEqual(present, record) {
		return errors.New("the claim has changed since it was found to be an orphan")
	}
	if err := alsoRemove(); err != nil {
		return err
	}
	err = d.forgetAll([]kubeletplugin.NamespacedObject{object})[object.UID]
	d.o.Recorder.Unprepared(err)
	return err
}

func anyConsumer(claim *resourceapi.ResourceClaim, pods []contract.PodRecord) bool {
	return slices.ContainsFunc(pods, func(p contract.PodRecord) bool { return isConsumer(claim, p.UID) })
}

// formerCPUsOf returns the CPUs of each result of the record, or nil if the results
// are another allocation.
func formerCPUsOf(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) []contract.CPUSet {
	if !decision.SameAllocation(record, results) {
		return nil
	}
	var former []contract.CPUSet
	for _, r := range record.Results {
		former = append(former, r.Decision.CPUs)
	}
	return former
}

// sameDevices returns an error if the results have other requests than the
// record. Kubelet has not released the claim, and keeps the CDI devices that it
// got for each request, also over its restart.
func sameDevices(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) error {
	request := func(name string) string {
		base, _, _ := strings.Cut(name, "/")
		return base
	}
	if !slices.EqualFunc(record.Results, results, func(was contract.ResultRecord, is resourceapi.DeviceRequestAllocationResult) bool {
		return request(was.Request) == request(is.Request)
	}) {
		return decision.Because(decision.ReasonClaim, errors.New("the new allocation has other requests than the prepared allocation, "+
			"and kubelet keeps the CDI devices of the prepared requests: delete the pods that use the claim"))
	}
	return nil
}

// replace replaces a claim's record after its pods have ended. While the claim file
// is replaced, the pool leaves out the CPUs of both decisions (I1), or only the CPUs
// of the new decision if the pool would be empty (I7). During this time the node
// state lists the claim for no pod, so that no container gets the former values (I5).
// After a crash Reconcile computes the node state from the claim file that exists
// (I4).
func (d *Driver) replace(was, is contract.ClaimRecord, others []contract.ClaimRecord) error {
	after, err := nodestate.Compute(d.o.Inventory.Base, append(slices.Clone(others), is))
	if err != nil {
		return err
	}
	idle := is
	was.Pods, idle.Pods = nil, nil
	between, err := nodestate.Compute(d.o.Inventory.Base, append(slices.Clone(others), was, idle))
	if errors.Is(err, nodestate.ErrNoSharedPool) {
		// I7: the pool needs a CPU of the former decision. No container can get
		// this CPU from the former claim file, because its pods have ended.
		between, err = nodestate.Compute(d.o.Inventory.Base, append(slices.Clone(others), idle))
	}
	if err != nil {
		return err
	}
	if err := d.o.Ledger.Replace(is, between, after); err != nil {
		_, reconcileErr := d.reconcile()
		return errors.Join(err, reconcileErr)
	}
	return nil
}
