// SPDX-License-Identifier: Apache-2.0

package enforce

import (
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
	a.InvalidPartitions = e.Invalid()
	a.FixedInterrupts, a.MachineFaults = few(e.machine.Fixed), nil
	for _, fault := range e.machine.Faults {
		if a.MachineFaults == nil {
			a.MachineFaults = make(map[string]string)
		}
		a.MachineFaults[fault.Feature] = contract.Excerpt(fault.Err.Error(), maxFault)
	}
	a.Overwritten = e.drift.since(since, func(dir string) string {
		if level, is := keys[dir]; is {
			return level
		}
		return cgroups.PodUID(dir)
	})
}

const (
	// maxFixed is how many interrupts the announcement names: a machine may have thousands.
	maxFixed = 32
	// maxFault bounds the text of a fault, in bytes.
	maxFault = 400
)

// few returns the first entries of a map.
func few(all map[string]string) map[string]string {
	if len(all) == 0 {
		return nil
	}
	some := make(map[string]string)
	keys := slices.Sorted(maps.Keys(all))
	for _, key := range keys[:min(len(keys), maxFixed)] {
		some[key] = all[key]
	}
	return some
}
