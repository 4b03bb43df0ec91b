// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"os"
	"testing"

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
					crashAt := -1
					if rapid.IntRange(0, 3).Draw(t, "crashes") == 0 {
						crashAt = rapid.IntRange(0, 12).Draw(t, "crash before operation")
					}
					t.Log(a.name, crashAt)
					require.NoError(t, w.take(a, crashAt), "%s", a.name)
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
