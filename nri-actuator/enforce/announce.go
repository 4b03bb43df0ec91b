// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

// FillAnnouncement puts into the announcement what the frontend cannot see. Contents of other
// programs are announced while they were seen since then.
func (e *Enforcer) FillAnnouncement(a *contract.Announcement, then time.Time) {
	levels := e.podLevels()
	keys := make(map[string]string)
	for level, dir := range levels {
		keys[dir] = level
	}
	a.Kubepods = levels[contract.LevelKubepods]
	a.InvalidPartitions = e.Invalid()
	a.Overwritten = e.drift.since(then, func(dir string) string {
		if level, is := keys[dir]; is {
			return level
		}
		return cgroups.PodUID(dir)
	})
}
