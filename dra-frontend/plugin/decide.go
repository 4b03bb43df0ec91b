// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// part is one result with the amounts from the scheduler and the settings from
// the parameters.
type part struct {
	resourceapi.DeviceRequestAllocationResult
	zone     Zone
	amounts  amounts.Amounts
	settings parameters.Settings
	// kept are the CPUs of the former decision on the same allocation, empty
	// for none.
	kept contract.CPUSet
}

// decide computes the record of a claim: the CPUs first, then the values that
// follow. kept are the CPUs of each result of the former decision, nil for
// none.
func (d *Driver) decide(claim *resourceapi.ResourceClaim, results []resourceapi.DeviceRequestAllocationResult,
	users users, usersErr error, prepared []contract.ClaimRecord, kept []contract.CPUSet) (contract.ClaimRecord, error) {
	record := contract.ClaimRecord{
		V: contract.Version, Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID), BootID: d.bootID,
	}
	parts := make([]part, len(results))
	for i, r := range results {
		p, err := d.read(claim, r)
		if err != nil {
			return record, about(r, err)
		}
		if kept != nil {
			p.kept = kept[i]
		}
		parts[i] = p
	}
	// I5: no claim is prepared without an actuator that applies its decision.
	announcement, err := d.actuator.Announcement()
	if err != nil {
		return record, err
	}
	if d.guard && announcement.Guard != "" {
		record.Guard, record.GuardTimeout = announcement.Guard, int((d.guardWait+contract.GuardMargin)/time.Second)
	}
	if usersErr != nil {
		return record, usersErr
	}
	record.Pods = users.records()
	record.OwnedByPod, record.Joinable = ownedByPod(claim), joinable(claim, parts)
	taken := nodestate.ClaimedCPUs(prepared)
	for i, p := range parts {
		decision, err := d.value(p, i, users, taken, prepared)
		if err != nil {
			return record, about(p.DeviceRequestAllocationResult, err)
		}
		if !decision.CPUs.IsEmpty() {
			if decision.Partition, err = users.partition(p.Request, prepared, announcement.Features); err != nil {
				return record, about(p.DeviceRequestAllocationResult, err)
			}
		}
		if decision.Partition != "" {
			decision.Requires = append(decision.Requires, contract.FeaturePartition)
			record.Joinable = false
		}
		if feature := decision.Unknown(announcement.Features); feature != "" {
			return record, about(p.DeviceRequestAllocationResult, fmt.Errorf("its parameters need %q, "+
				"which nri-actuator cannot do with this node's runtime (%s %s) and kernel: leave them out, or upgrade these",
				feature, announcement.Runtime, announcement.RuntimeVersion))
		}
		taken = taken.Union(decision.CPUs)
		result := resultRecord(p.DeviceRequestAllocationResult, decision)
		if result.Hugetlbfs, err = users.hugetlbfs(p.Request, p.settings.HugepagesMount, p.amounts.Hugepages); err != nil {
			return record, about(p.DeviceRequestAllocationResult, err)
		}
		result.Parameters = p.settings.Record(decision, len(p.amounts.Hugepages) > 0)
		record.Results = append(record.Results, result)
	}
	return record, d.scoreOOM(&record, users, announcement.Features)
}

// about adds the request and the device to an error.
func about(r resourceapi.DeviceRequestAllocationResult, err error) error {
	return fmt.Errorf("request %q on device %q: %w", r.Request, r.Device, err)
}

// read reads the amounts and parameters of a result, and checks that this node
// has the zone and can give the amounts. It does not change what the scheduler
// granted.
func (d *Driver) read(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) (part, error) {
	p := part{DeviceRequestAllocationResult: r}
	if r.Pool != d.pool {
		// The zones of all nodes have the same names: only the pool names the
		// node.
		return p, fmt.Errorf("it is allocated from pool %q, this node's pool is %q: "+
			"the ResourceSlice it comes from is not of this node's driver; delete that slice and the pod",
			r.Pool, d.pool)
	}
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
	if p.amounts.Divisible() && p.zone.Mems.IsEmpty() {
		return p, fmt.Errorf("memory or hugepages granted, the zone offers none: " +
			"its memory is not of a kind in memoryTypes (any more); delete the pod so that it is scheduled again")
	}
	if p.amounts.CPUs > p.zone.CPUs.Size() {
		return p, fmt.Errorf("%d CPUs granted, the zone has %d (%s)", p.amounts.CPUs, p.zone.CPUs.Size(), p.zone.CPUs)
	}
	if p.settings, err = d.settings.Resolve(r.Request, configOf(claim, r)); err != nil {
		return p, err
	}
	if f := p.settings.Memory.Factor; f != nil && p.amounts.Memory > 0 && d.noMemoryHigh != nil {
		return p, fmt.Errorf("memory.throttlingFactor: %v, but %w: leave it out, or use a node whose kernel can", *f, d.noMemoryHigh)
	}
	return p, nil
}

// configOf returns the parameters for a result in the claim's allocation.
func configOf(claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) []resourceapi.DeviceAllocationConfiguration {
	return resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, r)
}

// value returns the decision for the result number index. taken are the CPUs of
// other decisions.
func (d *Driver) value(p part, index int, u users, taken contract.CPUSet, prepared []contract.ClaimRecord) (contract.Decision, error) {
	decision := contract.Decision{V: contract.Version, Requires: []string{}}
	a := p.amounts
	switch {
	case !p.kept.IsEmpty() && p.kept.IsSubsetOf(p.zone.CPUs):
		// I8: later pods get the CPUs of the former pods if the zone has them.
		decision.CPUs = p.kept
	case a.CPUs > 0:
		// I2: the CPUs are from no other zone than the allocated one.
		free := p.zone.CPUs.Difference(taken)
		if free.Size() < a.CPUs {
			return decision, fmt.Errorf("%d CPUs granted, %d of the zone's %d are free (%s), the others are held by %s: "+
				"those of a pod that is still terminating come back when it is gone",
				a.CPUs, free.Size(), p.zone.CPUs.Size(), free, holders(prepared, p.zone.CPUs))
		}
		cpus, err := d.inventory.Pick(free, a.CPUs, p.settings.CPU)
		if err != nil {
			return decision, err
		}
		decision.CPUs = cpus
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
		m, err := u.memory(p.Request, index, p.settings.Memory, a.Memory)
		if err != nil {
			return decision, err
		}
		decision.Memory = &m
	}
	decision.Hugepages = p.settings.Limits(u.hugepages(p.Request, index, a.Hugepages, p.settings.Added))
	return decision, nil
}

// holders names the claims that hold CPUs of the zone, with these CPUs.
func holders(prepared []contract.ClaimRecord, zone contract.CPUSet) string {
	var names []string
	for _, c := range prepared {
		if held := c.CPUs().Intersection(zone); !held.IsEmpty() {
			names = append(names, fmt.Sprintf("claim %s/%s (%s)", c.Namespace, c.Name, held))
		}
	}
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}
