// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// Each further action makes the search about 16 times longer.
var (
	depth      = flag.Int("depth", 1, "actions in a history of the search")
	maxCrashes = flag.Int("crashes", 1, "crashes in a history of the search")
)

// TestSearch takes all actions in all orders, to a depth, on an empty node and on nodes
// whose pods run (I1, I2, I3, I5, I7).
func TestSearch(t *testing.T) {
	for _, version := range kerneltest.Releases() {
		for name, start := range map[string][]happened{"empty node": nil, "busy node": busy(false), "rivals": busy(true)} {
			t.Run(version.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				dir, remove := directoryFor(t)
				defer remove()
				began := time.Now()
				r, err := search(dir, version, start, *depth, *maxCrashes)
				t.Logf("%d actions, at most %d crashes: %d states, %d actions taken, %s",
					*depth, *maxCrashes, r.states, r.taken, time.Since(began).Round(time.Second))
				require.NoError(t, err)
			})
		}
	}
}

// The containers of a busy node run, one of them as a partition where the kernel can.
func TestBusyNode(t *testing.T) {
	for _, version := range kerneltest.Releases() {
		t.Run(version.Name, func(t *testing.T) {
			dir, remove := directoryFor(t)
			defer remove()
			for rivals, containers := range map[bool]int{false: 3, true: 4} {
				w, err := (&searcher{dir: dir, version: version}).replay(busy(rivals))
				require.NoError(t, err)
				partitions := 0
				for _, c := range w.containers {
					require.Equal(t, running, c.phase, c.pod.name)
					if c.decision.Partition != "" {
						partitions++
					}
				}
				require.Len(t, w.containers, containers)
				if version.Name == kerneltest.Linux61.Name {
					require.Zero(t, partitions)
				} else {
					require.Equal(t, 1, partitions)
				}
			}
		})
	}
}

// TestHistories takes random histories, in which operations also fail (I1, I2, I3, I5, I7).
// rapid's default of 100 checks takes at least 20 000 actions.
func TestHistories(t *testing.T) {
	for _, version := range kerneltest.Releases() {
		t.Run(version.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				dir, remove := directoryFor(t)
				defer remove()
				w, err := newWorld(dir, version)
				require.NoError(t, err)
				var all []happened
				for range rapid.IntRange(67, 77).Draw(t, "actions") {
					h := happened{rapid.SampledFrom(w.actions()).Draw(t, "action").name, drawMishap(t)}
					all = append(all, h)
					require.NoError(t, w.takeNamed(h), "%s", all)
				}
				require.NoError(t, w.finish(), "%s", all)
			})
		})
	}
}

// drawMishap draws no mishap for most actions.
func drawMishap(t *rapid.T) mishap {
	if rapid.IntRange(0, 3).Draw(t, "mishap") > 0 {
		return mishap{}
	}
	return mishap{
		kind:   rapid.SampledFrom([]mishapKind{crashes, fails, late, unreadable, powerLoss}).Draw(t, "kind"),
		before: rapid.IntRange(0, 40).Draw(t, "operations before"),
	}
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
