// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// reminder knows what was told as an event. The zero value has told nothing.
type reminder struct {
	known map[string]string
	// told is when all of it was told.
	told time.Time
}

// fresh returns the sorted keys of what is to be told now: what was not there
// the last time, and from time to time all.
func (r *reminder) fresh(now map[string]string) []string {
	again := time.Since(r.told) >= againInterval
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, known := r.known[key]; !known || again {
			keys = append(keys, key)
		}
	}
	r.known = now
	if again && len(keys) > 0 {
		r.told = time.Now()
	}
	return keys
}

// maxNamed is how many things an event names.
const maxNamed = 6

func few(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
