// SPDX-License-Identifier: Apache-2.0

// Package claimstatus writes the status of claims (KEP-4817). The entry of each
// device has the decision, a condition that turns false when the machine lacks a
// part of it, and conditions about memory protection, interrupts, CPU limits and what was
// measured. The daemon sets the prepared claims, and neither waits for a write nor fails with it.
//
// The API server removes the entries when a claim is deallocated.
package claimstatus

import (
	"encoding/json"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

const (
	// ConditionReady is the name that Kubernetes proposes.
	ConditionReady = "Ready"
	// ConditionProtection is the condition of devices with memory protection.
	ConditionProtection = "MemoryProtectionEffective"
	// ConditionInterrupts is the condition of devices without interrupts on their CPUs.
	ConditionInterrupts = "InterruptsQuiet"
	// ConditionThrottling is the condition of devices whose container has a CPU limit, or had
	// one that is lifted.
	ConditionThrottling = "Unthrottled"
	// ConditionQuiet is the condition of devices whose CPUs are measured.
	ConditionQuiet = "Quiet"
	// ReasonPrepared is the reason of ConditionReady without a finding.
	ReasonPrepared = "Prepared"
)

// Data is the opaque part of an entry: the decision in the contract's form.
type Data struct {
	Request      string                    `json:"request"`
	CPUs         contract.CPUSet           `json:"cpus,omitzero"`
	Partition    string                    `json:"partition,omitempty"`
	Mems         contract.NUMANodeSet      `json:"mems,omitzero"`
	Memory       *contract.Memory          `json:"memory,omitempty"`
	Hugepages    map[string]contract.Limit `json:"hugepages,omitempty"`
	MemoryPolicy *contract.MemoryPolicy    `json:"memoryPolicy,omitempty"`
	Quota        string                    `json:"quota,omitempty"`
	Parameters   map[string]string         `json:"parameters,omitempty"`
}

// Report has the findings about results of claims.
type Report struct {
	// Health has the parts of decisions that the machine lacks.
	Health map[contract.Key]health.Finding
	// Protection has a finding for each result with memory protection.
	Protection map[contract.Key]health.Protection
	// Quiet has the conditions of results whose CPUs are to be quiet.
	Quiet map[contract.Key]health.Quiet
}

// device is an entry to be written. Entries are compared with ==.
type device struct {
	pool, name, shareID string
	ready               condition
	// protection is empty for a device without memory protection, interrupts and
	// throttling for a device without such a promise, measured for one that is not measured.
	protection, interrupts, throttling, measured condition
	data                                         string
}

// condition is a condition to be written. where is the cgroup file of a finding, or the
// magnitudes of what was measured. Findings that differ only in their message are the same finding.
type condition struct {
	kind, reason, message, where string
	status                       metav1.ConditionStatus
}

// devices returns the entries of a claim; before has the entries of the last
// call.
func devices(c contract.ClaimRecord, report Report, before []device) []device {
	out := make([]device, len(c.Results))
	for i, r := range c.Results {
		key := contract.Key{ClaimUID: c.UID, Index: i}
		d := device{
			pool: r.Pool, name: r.Device, shareID: r.ShareID, data: encode(r),
			ready: condition{
				kind: ConditionReady, status: metav1.ConditionTrue, reason: ReasonPrepared,
				message: "the claim is prepared on this node",
			},
		}
		if f, found := report.Health[key]; found {
			d.ready = condition{kind: ConditionReady, status: metav1.ConditionFalse, reason: f.Reason, message: f.Message}
		}
		if f, found := report.Protection[key]; found {
			d.protection = condition{kind: ConditionProtection, status: f.Status, reason: f.Reason, message: f.Message, where: f.Where}
			if i < len(before) {
				d.protection = d.protection.unlessReworded(before[i].protection)
			}
		}
		q := report.Quiet[key]
		d.interrupts, d.throttling = conditionOf(ConditionInterrupts, q.Interrupts), conditionOf(ConditionThrottling, q.Quota)
		d.measured = conditionOf(ConditionQuiet, q.Measured)
		d.measured.where = q.Magnitudes
		if i < len(before) {
			d.measured = d.measured.unlessReworded(before[i].measured)
		}
		out[i] = d
	}
	return out
}

func conditionOf(kind string, c health.Condition) condition {
	if c == (health.Condition{}) {
		return condition{}
	}
	return condition{kind: kind, status: c.Status, reason: c.Reason, message: c.Message}
}

// unlessReworded returns before if only the message differs: each claim that comes or goes
// changes the sums in the messages of the other claims, and what is measured grows.
func (c condition) unlessReworded(before condition) condition {
	worded := before
	worded.message = c.message
	if worded == c {
		return before
	}
	return c
}

// conditions returns the conditions that the device has.
func (d device) conditions() []condition {
	return slices.DeleteFunc([]condition{d.ready, d.protection, d.interrupts, d.throttling, d.measured},
		func(c condition) bool { return c == condition{} })
}

// maxData is the API's limit in bytes. Longer data is left out; only lists of
// many hundreds of single CPUs are longer.
const maxData = 10 << 10

func encode(r contract.ResultRecord) string {
	d := r.Decision
	data, err := json.Marshal(Data{
		Request: r.Request, CPUs: d.CPUs, Partition: d.Partition, Mems: d.Mems, Memory: d.Memory, Hugepages: d.Hugepages,
		MemoryPolicy: d.MemoryPolicy, Quota: d.Quota, Parameters: r.Parameters,
	})
	if err != nil || len(data) > maxData {
		return ""
	}
	return string(data)
}

// about reports whether an entry of this driver is the device's.
func (d device) about(s *resourceapi.AllocatedDeviceStatus) bool {
	share := ""
	if s.ShareID != nil {
		share = *s.ShareID
	}
	return s.Pool == d.pool && s.Device == d.name && share == d.shareID
}

// is reports whether the entry has the wanted data and conditions.
func (d device) is(s *resourceapi.AllocatedDeviceStatus) bool {
	wanted := d.conditions()
	for _, kind := range []string{ConditionProtection, ConditionInterrupts, ConditionThrottling, ConditionQuiet} {
		if !slices.ContainsFunc(wanted, func(c condition) bool { return c.kind == kind }) && meta.FindStatusCondition(s.Conditions, kind) != nil {
			return false
		}
	}
	for _, w := range wanted {
		c := meta.FindStatusCondition(s.Conditions, w.kind)
		if c == nil || c.Status != w.status || c.Reason != w.reason || c.Message != w.message {
			return false
		}
	}
	raw := ""
	if s.Data != nil {
		raw = string(s.Data.Raw)
	}
	return sameJSON(raw, d.data)
}

// sameJSON compares by meaning: the server may reorder members.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// entry returns the entry to be written. A condition with the same status keeps
// the time of its last transition.
func (d device) entry(driver string, old *resourceapi.AllocatedDeviceStatus, now metav1.Time) resourceapi.AllocatedDeviceStatus {
	entry := resourceapi.AllocatedDeviceStatus{Driver: driver, Pool: d.pool, Device: d.name}
	for _, w := range d.conditions() {
		since := now
		if old != nil {
			if c := meta.FindStatusCondition(old.Conditions, w.kind); c != nil && c.Status == w.status {
				since = c.LastTransitionTime
			}
		}
		entry.Conditions = append(entry.Conditions, metav1.Condition{
			Type: w.kind, Status: w.status, Reason: w.reason, Message: w.message, LastTransitionTime: since,
		})
	}
	if d.shareID != "" {
		entry.ShareID = &d.shareID
	}
	if d.data != "" {
		entry.Data = &runtime.RawExtension{Raw: []byte(d.data)}
	}
	return entry
}
