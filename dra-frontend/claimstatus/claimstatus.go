// SPDX-License-Identifier: Apache-2.0

// Package claimstatus shows what was decided for a claim in the claim's own
// status (KEP-4817): for each device the decision, a condition that turns
// false when the machine lacks what the claim holds, and one that says whether
// its memory protection is effective. It stands beside the path
// of a claim: the daemon tells it what is prepared, and it writes what the API
// server does not have yet, in its own time. Nothing waits for it, and nothing
// fails with it.
//
// Nobody has to remove the entries: the API server does when a claim is
// deallocated.
package claimstatus

import (
	"encoding/json"
	"reflect"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/protection"
)

const (
	// ConditionReady is the condition that Kubernetes names for this.
	ConditionReady = "Ready"
	// ConditionProtection stands beside it for devices with memory protection.
	ConditionProtection = "MemoryProtectionEffective"
	// ReasonPrepared is the reason while all is well.
	ReasonPrepared = "Prepared"
)

// Data is what stands in the status beside the condition: the decision as the
// contract has it.
type Data struct {
	Request      string                    `json:"request"`
	CPUs         string                    `json:"cpus,omitempty"`
	Partition    string                    `json:"partition,omitempty"`
	Mems         string                    `json:"mems,omitempty"`
	Memory       *contract.Memory          `json:"memory,omitempty"`
	Hugepages    map[string]contract.Limit `json:"hugepages,omitempty"`
	MemoryPolicy *contract.MemoryPolicy    `json:"memoryPolicy,omitempty"`
	Parameters   map[string]string         `json:"parameters,omitempty"`
}

// Report is what was found about results of claims.
type Report struct {
	// Health has what the machine lacks.
	Health map[contract.Key]health.Finding
	// Protection has whether memory protection is effective, where there is any.
	Protection map[contract.Key]protection.Finding
}

// device is an entry as it shall be. Entries are compared with ==.
type device struct {
	pool, name, shareID string
	ready               condition
	// protection is empty for a device without memory protection.
	protection condition
	data       string
}

// condition is one as it shall be. Its place tells numbers that follow other
// claims in the message from another finding.
type condition struct {
	kind, reason, message, where string
	status                       metav1.ConditionStatus
}

// devices returns the entries of a claim; before are those of the last time.
func devices(c contract.ClaimRecord, report Report, before []device) []device {
	out := make([]device, len(c.Results))
	for i, r := range c.Results {
		key := contract.Key{ClaimUID: c.UID, Index: i}
		d := device{
			pool: r.Pool, name: r.Device, shareID: r.ShareID, data: encode(r),
			ready: condition{kind: ConditionReady, status: metav1.ConditionTrue, reason: ReasonPrepared, message: "the claim is prepared on this node"},
		}
		if f, found := report.Health[key]; found {
			d.ready = condition{kind: ConditionReady, status: metav1.ConditionFalse, reason: f.Reason, message: f.Message}
		}
		if f, found := report.Protection[key]; found {
			d.protection = condition{kind: ConditionProtection, status: f.Status, reason: f.Reason, message: f.Message, where: f.Where}
			if i < len(before) {
				d.protection = d.protection.keep(before[i].protection)
			}
		}
		out[i] = d
	}
	return out
}

// keep returns the condition of before where only the words differ: each claim
// that comes or goes changes the sums that all others are compared with.
func (c condition) keep(before condition) condition {
	worded := before
	worded.message = c.message
	if worded == c {
		return before
	}
	return c
}

// conditions returns those that the entry has.
func (d device) conditions() []condition {
	if d.protection == (condition{}) {
		return []condition{d.ready}
	}
	return []condition{d.ready, d.protection}
}

// maxData is the API's limit. Only lists of many hundreds of single CPUs reach
// it; what is too long is left out.
const maxData = 10 << 10

func encode(r contract.ResultRecord) string {
	d := r.Decision
	data, err := json.Marshal(Data{
		Request: r.Request, CPUs: d.CPUs, Partition: d.Partition, Mems: d.Mems, Memory: d.Memory, Hugepages: d.Hugepages, MemoryPolicy: d.MemoryPolicy, Parameters: r.Parameters,
	})
	if err != nil || len(data) > maxData {
		return ""
	}
	return string(data)
}

// about tells whether the entry, one of the driver's, is the device's.
func (d device) about(s *resourceapi.AllocatedDeviceStatus) bool {
	share := ""
	if s.ShareID != nil {
		share = *s.ShareID
	}
	return s.Pool == d.pool && s.Device == d.name && share == d.shareID
}

// is tells whether the status says what it shall.
func (d device) is(s *resourceapi.AllocatedDeviceStatus) bool {
	if d.protection == (condition{}) && meta.FindStatusCondition(s.Conditions, ConditionProtection) != nil {
		return false
	}
	for _, w := range d.conditions() {
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

// sameJSON compares by meaning: the server orders members as it likes.
func sameJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// entry returns the entry to be written. A condition that stays as it was keeps
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
