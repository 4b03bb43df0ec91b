// SPDX-License-Identifier: Apache-2.0

package claimstatus

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operation is an operation of a JSON patch (RFC 6902). The server refuses a
// write that changes the allocation or other drivers' entries, and compares
// opaque JSON byte by byte. Only a JSON patch leaves the rest of a claim alone: a
// server-side apply sorts the members of opaque parameters, and a merge patch
// repeats the whole list and drops nulls. No patch works for opaque JSON with
// white space, <, > or &, because the server encodes it anew before it patches:
// the status of such a claim is not written.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const entries = "/status/devices"

// operations returns the operations that change this pool's entries to want; nil
// if the entries need no change. The operations name entries by index, so they
// hold only for this version of the claim. The driver's entries in another slice
// pool stay: they belong to the node to which the claim was allocated later.
func operations(driver, pool string, want []device, claim *resourceapi.ResourceClaim, now metav1.Time) []operation {
	var replace, remove, add []operation
	have := make(map[device]bool, len(want))
	devices := claim.Status.Devices
	for i := len(devices) - 1; i >= 0; i-- { // from the end: a removal moves the entries behind it
		old := &devices[i]
		if old.Driver != driver || old.Pool != pool {
			continue
		}
		path := entries + "/" + strconv.Itoa(i)
		d, wanted := find(want, old)
		switch {
		case !wanted:
			remove = append(remove, operation{Op: "remove", Path: path})
		case !d.is(old):
			replace = append(replace, operation{Op: "replace", Path: path, Value: d.entry(driver, old, now)})
		}
		have[d] = true
	}
	for _, d := range want {
		if !have[d] {
			add = append(add, operation{Op: "add", Path: entries + "/-", Value: d.entry(driver, nil, now)})
		}
	}
	if len(devices) == 0 && len(add) > 0 {
		add = append([]operation{{Op: "add", Path: entries, Value: []struct{}{}}}, add...)
	}
	if len(replace)+len(remove)+len(add) == 0 {
		return nil
	}
	// The server refuses the patch for another version of the claim.
	out := []operation{
		{Op: "replace", Path: "/metadata/uid", Value: claim.UID},
		{Op: "replace", Path: "/metadata/resourceVersion", Value: claim.ResourceVersion},
	}
	out = append(out, replace...)
	return append(append(out, remove...), add...)
}

// find returns the wanted device of an entry.
func find(want []device, s *resourceapi.AllocatedDeviceStatus) (device, bool) {
	for _, d := range want {
		if d.about(s) {
			return d, true
		}
	}
	return device{}, false
}
