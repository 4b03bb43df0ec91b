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

// TestHistories takes random histories of the node.
func TestHistories(t *testing.T) {
	for _, release := range []kernel.Release{kernel.Linux612, kernel.Linux7} {
		t.Run(release.Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				dir, remove := directoryFor(t)
				defer remove()
				w, err := newWorld(dir, release)
				require.NoError(t, err)
				for range rapid.IntRange(1, 40).Draw(t, "actions") {
					actions := w.actions()
					a := actions[rapid.IntRange(0, len(actions)-1).Draw(t, "action")]
					f := none
					if rapid.IntRange(0, 3).Draw(t, "fault") == 0 {
						f = fault{before: rapid.IntRange(0, 12).Draw(t, "before"), fails: rapid.Bool().Draw(t, "fails")}
					}
					t.Log(a.name, f)
					require.NoError(t, w.take(a, f), "%s", a.name)
				}
				require.NoError(t, w.finish())
			})
		})
	}
}

// directoryFor returns a new directory in memory.
func directoryFor(t *rapid.T) (dir string, remove func()) {
	dir, err := os.MkdirTemp("/dev/shm", "explore")
	require.NoError(t, err)
	return dir, func() { _ = os.RemoveAll(dir) }
}

// TestSearch takes all actions in all orders.
func TestSearch(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "explore")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	start := time.Now()
	r, err := search(dir, kernel.Linux612, *depth, *crashes)
	t.Logf("depth %d, %d crashes: %d states, %d steps, %s", *depth, *crashes, r.States, r.Steps, time.Since(start))
	require.NoError(t, err)
}

var depth, crashes = flag.Int("depth", 2, ""), flag.Int("crashes", 1, "")
