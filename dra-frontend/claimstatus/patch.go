// SPDX-License-Identifier: Apache-2.0

package claimstatus

import (
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operation is one of a JSON patch (RFC 6902). The server compares what a write
// leaves of the allocation, and of other drivers' entries, with what it has,
// opaque JSON byte by byte. Of all patches only this kind leaves alone what it
// does not name: a server-side apply sorts the members of opaque parameters, and
// a merge patch has to restate the whole list and drops nulls from it. Opaque
// JSON with white space or with <, > or & no patch leaves alone, as the server
// encodes it anew before it patches: such a claim's status is refused.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

const entries = "/status/devices"

// operations make the driver's entries in the status of a claim those wanted;
// there are none if they are. They hold for this version of this claim only:
// they name entries by their place. Entries of the driver in other pools than
// this node's are another node's, to which the claim was allocated since.
func operations(driver, pool string, want []device, claim *resourceapi.ResourceClaim, now metav1.Time) []operation {
	var replace, remove, add []operation
	have := make(map[device]bool, len(want))
	devices := claim.Status.Devices
	for i := len(devices) - 1; i >= 0; i-- { // from the end: a removal moves those behind it
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
	// The server refuses them for another version.
	out := []operation{
		{Op: "replace", Path: "/metadata/uid", Value: claim.UID},
		{Op: "replace", Path: "/metadata/resourceVersion", Value: claim.ResourceVersion},
	}
	out = append(out, replace...)
	return append(append(out, remove...), add...)
}

// find returns the device that an entry is about.
func find(want []device, s *resourceapi.AllocatedDeviceStatus) (device, bool) {
	for _, d := range want {
		if d.about(s) {
			return d, true
		}
	}
	return device{}, false
}
