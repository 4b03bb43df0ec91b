// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// Each further action makes the search about five times longer.
var (
	depth   = flag.Int("depth", 2, "actions in a history of the search")
	crashes = flag.Int("crashes", 1, "crashes in a history of the search")
)

// partitioning are the kernels that can make a container's cgroup a partition. On an
// older kernel no frontend decides so.
func partitioning() []kernel.Release { return []kernel.Release{kernel.Linux612, kernel.Linux7} }

// TestSearch takes all actions in all orders, to a depth (I1, I3, I5, I7).
func TestSearch(t *testing.T) {
	for _, release := range partitioning() {
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			dir, remove := directoryFor(t)
			defer remove()
			start := time.Now()
			r, err := search(dir, release, *depth, *crashes)
			t.Logf("%d actions, at most %d crashes: %d states, %d actions taken, %s",
				*depth, *crashes, r.states, r.taken, time.Since(start).Round(time.Second))
			require.NoError(t, err)
		})
	}
}

// TestHistories takes random histories, in which operations also fail (I1, I3, I5, I7).
// rapid's default of 100 checks takes at least 20 000 actions.
func TestHistories(t *testing.T) {
	for _, release := range partitioning() {
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				dir, remove := directoryFor(t)
				defer remove()
				w, err := newWorld(dir, release)
				require.NoError(t, err)
				for range rapid.IntRange(100, 110).Draw(t, "actions") {
					a := rapid.SampledFrom(w.actions()).Draw(t, "action")
					require.NoError(t, w.take(a, drawFault(t)), "%s", a)
				}
				require.NoError(t, w.finish())
			})
		})
	}
}

// drawFault draws no fault for most actions.
func drawFault(t *rapid.T) fault {
	if rapid.IntRange(0, 3).Draw(t, "fault") > 0 {
		return none
	}
	return fault{before: rapid.IntRange(0, 12).Draw(t, "operations before"), fails: rapid.Bool().Draw(t, "fails")}
}

// directoryFor returns a new directory, in memory if the machine has such a place.
func directoryFor(t require.TestingT) (dir string, remove func()) {
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = ""
	}
	dir, err := os.MkdirTemp(memory, "explore")
	require.NoError(t, err)
	return dir, func() { _ = os.RemoveAll(dir) }
}
