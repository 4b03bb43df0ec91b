// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"slices"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// AgainInterval is how often a lasting fault is reported again. The API server
// keeps events for an hour, and may be away for longer than a notice waits.
const AgainInterval = time.Hour

// Reminder knows the faults that were reported as events. Its zero value is ready.
type Reminder struct {
	known map[string]string
	// sent is when all faults were reported together.
	sent time.Time
}

// Fresh returns the sorted keys of the faults to report: faults that were absent
// at the last call, or all faults once AgainInterval is over.
func (r *Reminder) Fresh(now map[string]string) []string {
	again := time.Since(r.sent) >= AgainInterval
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

// FreshTexts returns the values of the keys that Fresh returns.
func (r *Reminder) FreshTexts(now map[string]string) []string {
	var texts []string
	for _, key := range r.Fresh(now) {
		texts = append(texts, now[key])
	}
	return texts
}

// maxNamed is how many names Few shows.
const maxNamed = 6

// Few joins the first names, with the number of further names.
func Few(names []string) string { return contract.Few(names, maxNamed) }
