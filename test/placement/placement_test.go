// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each figure is at most kubelet's static policy's, and their sum at most a third of
// kubelet's. Seeds are fixed. Time is not tested.
func TestNoWorseThanKubelet(t *testing.T) {
	var ours, theirs figures
	for _, s := range scenarios() {
		for _, v := range variants {
			o, k, err := compare(s, v, size{seeds: 2, events: 400}, false)
			require.NoError(t, err)
			t.Logf("%s, %s: wider %d / %d, split %d / %d, refused %d / %d of %d",
				s.name, v.name, o.wider, k.wider, o.split, k.split, o.refused, k.refused, o.wholeL3s)
			require.LessOrEqual(t, o.wider, k.wider, "%s, %s", s.name, v.name)
			require.LessOrEqual(t, o.split, k.split, "%s, %s", s.name, v.name)
			require.LessOrEqual(t, o.refused, k.refused, "%s, %s", s.name, v.name)
			ours.add(o)
			theirs.add(k)
		}
	}
	t.Logf("all: %d / %d; time %v / %v", ours.fragmentation(), theirs.fragmentation(), ours.time, theirs.time)
	require.LessOrEqual(t, 3*ours.fragmentation(), theirs.fragmentation())
}
