// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/cpuset"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/memoryqos"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// prepare is the flow of one claim.
func (d *Driver) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	results, err := ownResults(claim)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	// The API server may be slow: nobody waits for it inside the lock.
	users, usersErr := d.users(ctx, claim)
	if usersErr == nil && len(users.pods) == 0 {
		usersErr = fmt.Errorf("claim %s/%s is not reserved for any pod that exists", claim.Namespace, claim.Name)
	}

	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	log := d.log.With(zap.String("claim", claim.Namespace+"/"+claim.Name), zap.String("uid", string(claim.UID)))

	claims, err := d.ledger.Load()
	if err != nil {
		return nil, err
	}
	if record, known := claims.Find(string(claim.UID)); known {
		if sameAllocation(record, results) {
			// I8: the first answer stands, whatever else has changed since.
			log.Debug("claim is already prepared")
			return answer(record), nil
		}
		// The scheduler's word is final. It allocates a claim anew only when no
		// pod holds it any more, so what stands here was never unprepared.
		log.Warn("claim was allocated anew, its old preparation is dropped", zap.String("cpus", record.CPUs()), zap.Strings("zones", zonesOf(record)))
		if err := d.ledger.Forget(record.UID); err != nil {
			return nil, err
		}
		claims.Prepared = claims.Without(record.UID)
	}
	record, err := d.decide(claim, results, users, usersErr, claims.Prepared)
	if err != nil {
		log.Info("claim not prepared", zap.Error(err))
		return nil, err
	}
	// What is wrong with the node is said after what is wrong with the claim:
	// it is retried, and the claim's own faults do not go away by it.
	if err := claims.Blocked(); err != nil {
		return nil, err
	}
	before, err := nodestate.Compute(d.inventory.Base, claims.Prepared)
	if err != nil {
		return nil, err
	}
	with := append(slices.Clone(claims.Prepared), record)
	state, err := nodestate.Compute(d.inventory.Base, with)
	if err != nil {
		return nil, err
	}
	if err := d.ledger.Add(record, state, before); err != nil {
		log.Error("claim not prepared", zap.Error(err))
		return nil, err
	}
	d.count(with)
	log.Info("claim prepared", zap.String("cpus", record.CPUs()), zap.Strings("zones", zonesOf(record)), zap.Strings("pods", podsOf(record)))
	return answer(record), nil
}

// ownResults returns this driver's allocation results, in order.
func ownResults(claim *resourceapi.ResourceClaim) ([]resourceapi.DeviceRequestAllocationResult, error) {
	if claim.Status.Allocation == nil {
		return nil, fmt.Errorf("claim %s/%s is not allocated", claim.Namespace, claim.Name)
	}
	var own []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != DriverName {
			continue
		}
		if r.AdminAccess != nil && *r.AdminAccess {
			return nil, fmt.Errorf("request %q asks for admin access, which would pin a container to CPUs that others hold; this driver has none to give", r.Request)
		}
		own = append(own, r)
	}
	return own, nil
}

// part is one result with what is asked for: amounts from the scheduler,
// settings from the parameters.
type part struct {
	resourceapi.DeviceRequestAllocationResult
	zone     Zone
	amounts  amounts.Amounts
	settings parameters.Settings
}

// decide computes the record of a claim: CPUs first, then all that follows.
func (d *Driver) decide(claim *resourceapi.ResourceClaim, results []resourceapi.DeviceRequestAllocationResult, users users, usersErr error, prepared []contract.ClaimRecord) (contract.ClaimRecord, error) {
	record := contract.ClaimRecord{
		V: contract.Version, Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID), BootID: d.bootID,
	}
	parts := make([]part, len(results))
	for i, r := range results {
		p, err := d.read(claim, r)
		if err != nil {
			return record, about(r, err)
		}
		parts[i] = p
	}
	// I5: nothing is prepared that nobody would apply.
	announcement, err := d.actuator.Announcement()
	if err != nil {
		return record, err
	}
	if d.guard {
		record.Guard = announcement.Guard
	}
	if usersErr != nil {
		return record, usersErr
	}
	record.Pods = users.records()
	taken := nodestate.Exclusive(prepared)
	for _, p := range parts {
		decision, err := d.value(p, users, taken, prepared)
		if err != nil {
			return record, about(p.DeviceRequestAllocationResult, err)
		}
		if feature := decision.Unknown(announcement.Features); feature != "" {
			return record, about(p.DeviceRequestAllocationResult, fmt.Errorf("its parameters need %q, which nri-actuator cannot do with this node's runtime (%s %s) and kernel: leave them out, or upgrade these",
				feature, announcement.Runtime, announcement.RuntimeVersion))
		}
		if decision.CPUs != "" {
			picked, err := cpuset.Parse(decision.CPUs)
			if err != nil {
				return record, err
			}
			taken = taken.Union(picked)
		}
		result := resultRecord(p.DeviceRequestAllocationResult, decision)
		result.Parameters = p.settings.Record(decision, len(p.amounts.Hugepages) > 0)
		record.Results = append(record.Results, result)
	}
	record.Joinable = joinable(claim, parts)
	return record, nil
}

// about says which request an error is about.
func about(r resourceapi.DeviceRequestAllocationResult, err error) error {
	return fmt.Errorf("request %q on device %q: %w", r.Request, r.Device, err)
}

// read reads the amounts and parameters of a result and checks that they are
// about a zone of this node: the scheduler's word is final.
func (d *Driver) read(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) (part, error) {
	p := part{DeviceRequestAllocationResult: r}
	var known bool
	if p.zone, known = d.inventory.Zones[r.Device]; !known {
		return p, fmt.Errorf("this node has no such zone now: delete the pod so that it is scheduled again")
	}
	var err error
	if p.amounts, err = amounts.Of(r, d.inventory.PageSize); err != nil {
		return p, err
	}
	if p.amounts.CPUs == 0 && !p.amounts.Divisible() {
		return p, fmt.Errorf("it asks for nothing: set capacity.requests of cpu, memory or hugepages_<size>")
	}
	if p.amounts.CPUs > p.zone.CPUs.Size() {
		return p, fmt.Errorf("%d CPUs granted, the zone has %d (%s)", p.amounts.CPUs, p.zone.CPUs.Size(), p.zone.CPUs)
	}
	p.settings, err = d.settings.Resolve(r.Request, resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, r))
	return p, err
}

// value makes the decision for one result.
func (d *Driver) value(p part, u users, taken cpuset.CPUSet, prepared []contract.ClaimRecord) (contract.Decision, error) {
	decision := contract.Decision{V: contract.Version, Requires: []string{}}
	a := p.amounts
	if a.CPUs > 0 {
		// I2: never another zone than the one allocated.
		free := p.zone.CPUs.Difference(taken)
		if free.Size() < a.CPUs {
			return decision, fmt.Errorf("%d CPUs granted, %d of the zone's %d are free (%s), the others are held by %s: those of a pod that is still terminating come back when it is gone",
				a.CPUs, free.Size(), p.zone.CPUs.Size(), free, holders(prepared, p.zone.CPUs))
		}
		cpus, err := d.inventory.Pick(free, a.CPUs, p.settings.CPU)
		if err != nil {
			return decision, err
		}
		decision.CPUs = cpus.String()
	}
	if a.Divisible() {
		decision.Mems = p.zone.Mems
		if err := u.exclusive(p.Request); err != nil {
			return decision, err
		}
		if mode := p.settings.MemoryPolicy; mode != "" {
			decision.MemoryPolicy = &contract.MemoryPolicy{Mode: mode, Nodes: p.zone.Mems}
			decision.Requires = decision.MemoryPolicy.Features()
		}
	}
	if a.Memory > 0 {
		limit, err := u.limit(p.Request, a.Memory)
		if err != nil {
			return decision, err
		}
		m, err := memoryqos.Container(a.Memory, limit, p.settings.Memory)
		if err != nil {
			return decision, err
		}
		decision.Memory = &m
	}
	decision.Hugepages = p.settings.Limits(u.hugepages(p.Request, a.Hugepages))
	return decision, nil
}

// holders names the claims that hold CPUs of the zone.
func holders(prepared []contract.ClaimRecord, zone cpuset.CPUSet) string {
	var names []string
	for _, c := range prepared {
		if held := nodestate.CPUsOf(c).Intersection(zone); !held.IsEmpty() {
			names = append(names, fmt.Sprintf("claim %s/%s (%s)", c.Namespace, c.Name, held))
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

// sameAllocation tells whether the record is of these results.
func sameAllocation(record contract.ClaimRecord, results []resourceapi.DeviceRequestAllocationResult) bool {
	return slices.EqualFunc(record.Results, results, func(was contract.ResultRecord, is resourceapi.DeviceRequestAllocationResult) bool {
		now := resultRecord(is, was.Decision)
		return was.Request == now.Request && was.Pool == now.Pool && was.Device == now.Device &&
			was.ShareID == now.ShareID && maps.Equal(was.Consumed, now.Consumed)
	})
}

func resultRecord(r resourceapi.DeviceRequestAllocationResult, decision contract.Decision) contract.ResultRecord {
	record := contract.ResultRecord{
		Request: r.Request, Pool: r.Pool, Device: r.Device,
		Consumed: make(map[string]string, len(r.ConsumedCapacity)),
		Decision: decision,
	}
	if r.ShareID != nil {
		record.ShareID = string(*r.ShareID)
	}
	for name, q := range r.ConsumedCapacity {
		record.Consumed[string(name)] = q.String()
	}
	return record
}

// answer is what kubelet is told, from the record alone (I8).
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
