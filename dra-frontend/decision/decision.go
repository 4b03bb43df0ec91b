// SPDX-License-Identifier: Apache-2.0

// Package decision decides claims. The scheduler has chosen zone and amounts;
// this package chooses the CPUs of that zone, and computes every value that
// follows from the amounts. It is a function from values to values: package
// kubelet reads the input and writes the records.
package decision

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/partition"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/quiet"
)

// Input is everything that the decisions of one call depend on.
type Input struct {
	// Claims are the claims to decide, in the order in which they get CPUs.
	Claims []Claim
	// OtherClaims are more claims of these claims' pods, which are not decided: the
	// values of a container depend on all its claims.
	OtherClaims []Claim
	// Prepared are the records of the prepared claims. A claim to decide may
	// have one, which its new record replaces.
	Prepared []contract.ClaimRecord
	Node     Node
	// AllocatableMemory is the node's allocatable memory in bytes, read if a claim
	// has NeedsAllocatableMemory. AllocatableMemoryErr is why it is not known.
	AllocatableMemory    int64
	AllocatableMemoryErr error
	// Machine has the facts about interrupts and frequencies, read if a claim has
	// NeedsMachine.
	Machine quiet.Facts
	// Err is why no claim can be decided, nil if claims can be decided. An error about a
	// claim itself comes first, because kubelet's next try does not mend the claim.
	Err error
}

// Node is the part of the input that is the same for all claims.
type Node struct {
	// SlicePool is the name of the pool that this node publishes.
	SlicePool string
	BootID    string
	Inventory Inventory
	// Actuator is what the actuator can do (I5).
	Actuator contract.Announcement
	// Guard is the path of the guard, empty for none. GuardTimeout is the
	// timeout of its hook in seconds.
	Guard        string
	GuardTimeout int
	// NoMemoryHigh says why memory.high cannot be written on this node, nil if
	// it can.
	NoMemoryHigh error
	// MemoryCapacity is the node's memory in bytes as kubelet counts it, 0 to
	// leave oom_score_adj to kubelet.
	MemoryCapacity int64
}

// Inventory is what the machine offers, computed from topology and
// configuration. An Inventory never changes: a changed machine gets a new one.
type Inventory struct {
	// Zones are the zones by device name.
	Zones map[string]Zone
	// Pick chooses n CPUs from free.
	Pick func(free contract.CPUSet, n int, o placement.Options) (contract.CPUSet, error)
	// Base is the part of the node state's input that does not come from
	// claims.
	Base nodestate.Base
}

// Zone is the part of the machine that a device stands for.
type Zone struct {
	CPUs contract.CPUSet
	// Mems are the zone's NUMA nodes with memory.
	Mems contract.NUMANodeSet
}

// Outcome is the answer for one claim: a record, or the reason why there is
// none.
type Outcome struct {
	Record contract.ClaimRecord
	Err    error
}

// Decide returns the outcome of each claim of in.Claims. A claim that cannot be
// decided takes no CPU from another claim.
func Decide(in Input) []Outcome {
	c := newCall(in)
	prepared := in.Prepared
	outcomes := make([]Outcome, len(in.Claims))
	for i, claim := range in.Claims {
		others := slices.DeleteFunc(slices.Clone(prepared), func(p contract.ClaimRecord) bool { return p.UID == claim.UID })
		record, err := c.decide(claim, others)
		if err != nil {
			outcomes[i].Err = err
			continue
		}
		outcomes[i].Record, prepared = record, append(others, record)
	}
	return outcomes
}

// call is an Input with the values that several claims share.
type call struct {
	Input
	// results are the results of all claims, in an order that does not depend on the
	// order of claims (I8).
	results []claimResult
	// partitions are the outcomes of the results with CPUs.
	partitions map[partition.Key]partition.Outcome
}

func newCall(in Input) call {
	all := slices.Concat(in.Claims, in.OtherClaims)
	c := call{Input: in, results: resultsOf(all)}
	c.partitions = c.decidePartitions(all)
	return c
}

// decide computes the record of a claim: the CPUs first, then the values that
// follow. others are the records of the other claims.
func (c call) decide(claim Claim, others []contract.ClaimRecord) (contract.ClaimRecord, error) {
	record := contract.ClaimRecord{
		V: contract.Version, Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, BootID: c.Node.BootID,
		Guard: c.Node.Guard, GuardTimeout: c.Node.GuardTimeout,
		Pods: claim.podRecords(), OwnedByPod: claim.OwnedByPod, Joinable: claim.joinable(),
	}
	if claim.ResultErr != nil {
		return record, Because(ReasonClaim, claim.ResultErr)
	}
	if err := c.besideFaulty(claim); err != nil {
		return record, Because(ReasonClaim, err)
	}
	if err := errors.Join(claim.checkFollowed(others), claim.checkResults(others), c.checkPairs(claim)); err != nil {
		return record, Because(ReasonClaim, err)
	}
	for _, r := range claim.Results {
		if err := c.check(r); err != nil {
			return record, Because(ReasonZone, r.wrap(err))
		}
	}
	if c.Err != nil {
		return record, c.Err
	}
	if err := claim.noPods(); err != nil {
		return record, Because(ReasonPods, err)
	}
	taken := nodestate.ClaimedCPUs(others)
	for _, r := range claim.Results {
		result, err := c.decideResult(claim, r, taken, others, record.Results)
		if err != nil {
			return record, Because(ReasonClaim, r.wrap(err))
		}
		taken = taken.Union(result.Decision.CPUs)
		record.Joinable = record.Joinable && result.Decision.Partition == ""
		record.Results = append(record.Results, result)
	}
	c.scoreOOM(&record, claim)
	return record, nil
}

// besideFaulty returns an error if each of the claim's pods has a claim that cannot be read. The values of a container depend on
// all results that it uses, and once a claim has a record, its values stay (I8). A pod without such a claim must not wait.
func (c call) besideFaulty(claim Claim) (err error) {
	all := slices.Concat(c.Claims, c.OtherClaims)
	for _, p := range claim.Pods {
		i := slices.IndexFunc(all, func(o Claim) bool { return o.ResultErr != nil && o.isOf(p) })
		if i < 0 {
			return nil
		}
		err = fmt.Errorf("claim %s, which the pod has as well, cannot be read: %w", all[i].Name, all[i].ResultErr)
	}
	return err
}

// check refuses a result whose zone this node does not have, and amounts that
// the zone cannot have. It does not change what the scheduler granted.
func (c call) check(r Result) error {
	if r.Pool != c.Node.SlicePool {
		// The zones of all nodes have the same names: only the pool names the
		// node.
		return fmt.Errorf("it is allocated from pool %q, this node's pool is %q: "+
			"the ResourceSlice it comes from is not of this node's driver; delete that slice and the pod",
			r.Pool, c.Node.SlicePool)
	}
	zone, known := c.Node.Inventory.Zones[r.Device]
	switch {
	case !known:
		return errors.New("this node has no such zone: delete the pod so that it is scheduled again")
	case r.Amounts.CPUs == 0 && !r.Amounts.HasMemory():
		return Because(ReasonClaim, errors.New("it asks for nothing: set capacity.requests of cpu, memory or hugepages_<size>"))
	case r.Amounts.HasMemory() && zone.Mems.IsEmpty():
		return errors.New("memory or hugepages granted, the zone offers none: " +
			"its memory is not of a kind in memoryTypes; delete the pod so that it is scheduled again")
	case r.Amounts.CPUs > zone.CPUs.Size():
		return fmt.Errorf("%d CPUs granted, the zone has %d (%s): delete the pod so that it is scheduled again",
			r.Amounts.CPUs, zone.CPUs.Size(), zone.CPUs)
	}
	if f := r.Settings.Memory.Factor; f != nil && r.Amounts.Memory > 0 && c.Node.NoMemoryHigh != nil {
		return Because(ReasonClaim, fmt.Errorf("memory.throttlingFactor: %v, but %w: leave it out, or use a node whose kernel can",
			*f, c.Node.NoMemoryHigh))
	}
	return nil
}

// decideResult returns the record of a result of the claim. taken are the CPUs of
// other results.
func (c call) decideResult(
	claim Claim, r Result, taken contract.CPUSet, others []contract.ClaimRecord, own []contract.ResultRecord,
) (contract.ResultRecord, error) {
	d, err := c.values(claim, r, taken, others)
	if err != nil {
		return contract.ResultRecord{}, err
	}
	if !d.CPUs.IsEmpty() {
		if d.Partition, err = c.partition(claim, r); err != nil {
			return contract.ResultRecord{}, Because(ReasonIsolation, err)
		}
	}
	if d.Partition != "" {
		d.Requires = append(d.Requires, contract.FeaturePartition)
	}
	if d.Partition == contract.PartitionIsolated {
		d.Requires = append(d.Requires, contract.FeatureIsolated)
	}
	if r.liftsQuota() {
		d.Quota, d.Requires = contract.QuotaNone, append(d.Requires, contract.FeatureQuota)
	}
	wish := c.quiet(claim, r, d)
	d.Requires = append(d.Requires, wish.Features()...)
	if feature := d.Unknown(c.Node.Actuator.Features); feature != "" {
		return contract.ResultRecord{}, Because(ReasonActuator, fmt.Errorf(
			"its parameters need %q, which this node cannot do: %s; leave them out, or upgrade the node",
			feature, c.Node.Actuator.Lacks(feature)))
	}
	if err := quiet.Check(wish, d.CPUs, others, own, c.Machine); err != nil {
		return contract.ResultRecord{}, err
	}
	record := r.ResultRecord
	record.Decision, record.Quiet = d, wish
	if record.Hugetlbfs, err = claim.hugetlbfs(r); err != nil {
		return contract.ResultRecord{}, err
	}
	record.Parameters = r.Settings.Record(d, len(r.Amounts.Hugepages) > 0)
	return record, nil
}

// quiet returns what the result asks of the machine for its CPUs.
func (c call) quiet(claim Claim, r Result, d contract.Decision) contract.Quiet {
	if d.CPUs.IsEmpty() {
		return contract.Quiet{}
	}
	wish := r.Settings.Quiet.Record()
	if d.Quota == "" {
		wish.LimitMilli = claim.cpuLimit(r.Request)
	}
	return wish
}

// values returns the decision for a result, without its partition.
func (c call) values(claim Claim, r Result, taken contract.CPUSet, others []contract.ClaimRecord) (contract.Decision, error) {
	d := contract.Decision{V: contract.Version, Requires: []string{}}
	zone := c.Node.Inventory.Zones[r.Device]
	var err error
	if r.Amounts.CPUs > 0 {
		if d.CPUs, err = c.chooseCPUs(claim, r, zone, taken, others); err != nil {
			return d, err
		}
	}
	if r.Amounts.HasMemory() {
		d.Mems = zone.Mems
		if err := claim.refuseSharing(r.Request); err != nil {
			return d, err
		}
		if mode := r.Settings.MemoryPolicy; mode != "" {
			d.MemoryPolicy = &contract.MemoryPolicy{Mode: mode, Nodes: zone.Mems}
			d.Requires = d.MemoryPolicy.Features()
		}
	}
	if r.Amounts.Memory > 0 {
		m, err := c.memoryValues(claim, r)
		if err != nil {
			return d, err
		}
		d.Memory = &m
	}
	d.Hugepages = r.Settings.Limits(c.hugepages(claim, r))
	return d, nil
}

func (c call) chooseCPUs(claim Claim, r Result, zone Zone, taken contract.CPUSet, others []contract.ClaimRecord) (contract.CPUSet, error) {
	if kept := claim.formerCPUs(r.Index); !kept.IsEmpty() && kept.IsSubsetOf(zone.CPUs) && kept.Intersection(taken).IsEmpty() {
		// I8: later pods get the CPUs of the former pods if the zone has them.
		return kept, nil
	}
	// I2: all CPUs are from the allocated zone.
	free := zone.CPUs.Difference(taken)
	if free.Size() < r.Amounts.CPUs {
		return contract.CPUSet{}, Because(ReasonCPUsHeld, fmt.Errorf(
			"%d CPUs granted, %d of the zone's %d are free (%s), holders of the other CPUs: %s; "+
				"a terminating pod frees its CPUs when it has ended",
			r.Amounts.CPUs, free.Size(), zone.CPUs.Size(), free, holders(claim.Namespace, others, zone.CPUs)))
	}
	cpus, err := c.Node.Inventory.Pick(free, r.Amounts.CPUs, r.Settings.CPU)
	if err != nil && free.Size() < zone.CPUs.Size() {
		// Whole cores or L3s may be free when other claims end.
		err = Because(ReasonCPUsHeld, err)
	}
	return cpus, err
}

// maxNames limits a message that becomes the event of a pod.
const maxNames = 8

// holders names the claims that hold CPUs of the zone, with these CPUs. A user who may
// read the events of the namespace must not learn the names of claims in other
// namespaces, so only the CPUs of those claims are named.
func holders(namespace string, prepared []contract.ClaimRecord, zone contract.CPUSet) string {
	var names []string
	var foreign, further contract.CPUSet
	for _, c := range prepared {
		switch held := c.CPUs().Intersection(zone); {
		case held.IsEmpty():
		case c.Namespace != namespace:
			foreign = foreign.Union(held)
		case len(names) == maxNames:
			further = further.Union(held)
		default:
			names = append(names, fmt.Sprintf("claim %s/%s (%s)", c.Namespace, c.Name, held))
		}
	}
	if !further.IsEmpty() {
		names = append(names, fmt.Sprintf("more claims of the namespace (%s)", further))
	}
	if !foreign.IsEmpty() {
		names = append(names, fmt.Sprintf("claims of other namespaces (%s)", foreign))
	}
	if len(names) == 0 {
		return "no claim"
	}
	return strings.Join(names, ", ")
}
