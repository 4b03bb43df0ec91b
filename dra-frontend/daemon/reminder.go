// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// reminder knows the faults that were reported as events. Its zero value is ready.
type reminder struct {
	known map[string]string
	// sent is when all faults were reported together.
	sent time.Time
}

// fresh returns the sorted keys of the faults to report: faults that were absent
// at the last call, or all faults once againInterval is over.
func (r *reminder) fresh(now map[string]string) []string {
	again := time.Since(r.sent) >= againInterval
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, known := r.known[key]; !known || again {
			keys = append(keys, key)
		}
	}
	r.known = now
	if again && len(keys) > 0 {
		r.sent = time.Now()
	}
	return keys
}

// maxNamed is how many names few shows.
const maxNamed = 6

// few joins the first names, with the number of further names.
func few(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
