// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// Histories in which a longer run of TestHistories found a violation.
func TestFoundHistories(t *testing.T) {
	const alone, none = "pod with CPUs 2-3 alone: ", "pod with no claim: "
	runs := []string{alone + "prepare", alone + "create", alone + "make the cgroup", alone + "start"}
	pooled := []string{none + "create", none + "make the cgroup", none + "start"}
	for name, c := range map[string]struct {
		kernel  kerneltest.Release
		history []string
	}{
		// The container went to the shared pool (I4, I5).
		"a container whose claim file and node file cannot be read": {kerneltest.Linux61, append(runs,
			"the claim file of the pod with CPUs 2-3 alone is made unreadable", "the actuator restarts",
			"the node file is made unreadable", alone+"update", "the directory has changed")},
		// The runtime wrote the CPUs of the creation again (I1).
		"an update while no node state is known": {kerneltest.Linux61, slices.Concat(pooled, runs,
			[]string{"refresh", "the node file is removed", "the actuator restarts", none + "update"})},
	} {
		t.Run(name, func(t *testing.T) {
			dir, remove := directoryFor(t)
			defer remove()
			w, err := newWorld(dir, c.kernel)
			require.NoError(t, err)
			for _, name := range c.history {
				require.NoError(t, w.takeNamed(happened{action: name}), name)
			}
			require.NoError(t, w.finish())
		})
	}
}
