// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

// FillAnnouncement puts into the announcement what the frontend cannot see. The
// announcement has what other programs wrote, as far as it was seen after since.
func (e *Enforcer) FillAnnouncement(a *contract.Announcement, since time.Time) {
	levels := e.podLevels()
	keys := make(map[string]string)
	for level, dir := range levels {
		keys[dir] = level
	}
	a.Kubepods = levels[contract.LevelKubepods]
	a.InvalidPartitions = first(maxInvalid, e.Invalid())
	a.FixedInterrupts, a.MachineFaults = first(maxFixed, e.machine.Fixed), nil
	for _, fault := range e.machine.Faults {
		if fault.Former {
			continue // no claim lacks it
		}
		if a.MachineFaults == nil {
			a.MachineFaults = make(map[string]string)
		}
		a.MachineFaults[fault.Feature] = contract.Excerpt(fault.Err.Error(), maxFault)
	}
	a.Overwritten = first(maxOverwritten, e.drift.since(since, func(dir string) string {
		if level, is := keys[dir]; is {
			return level
		}
		return cgroups.PodUID(dir)
	}))
}

// Bounds of what the announcement names. A file that is too large cannot be written, and the former announcement would stay.
const (
	// maxFixed is how many interrupts it names: a machine may have thousands.
	maxFixed = 32
	// maxInvalid is how many claims with a lost partition it names.
	maxInvalid = 300
	// maxOverwritten is how many cgroups it names that another program wrote over.
	maxOverwritten = 100
	// maxFault bounds the text about a fault of the machine or about a lost partition, in bytes.
	maxFault = 400
)

// first returns the first entries of a map, at most so many: short keys first, so that QoS levels come before pods.
func first[V any](most int, all map[string]V) map[string]V {
	if len(all) == 0 {
		return nil
	}
	some := make(map[string]V)
	keys := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, key := range keys[:min(len(keys), most)] {
		some[key] = all[key]
	}
	return some
}
