// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
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

func TestRow(t *testing.T) {
	ours := figures{claims: 10, wholeL3s: 4, wider: 1, split: 2, refused: 3, time: 20 * time.Microsecond, allocations: 80}
	theirs := figures{claims: 10, wholeL3s: 4, wider: 5, split: 6, refused: 4, time: 200 * time.Microsecond, allocations: 1000}
	zones := []zone{{0, contract.CPUs(0, 1, 2, 3)}, {1, contract.CPUs(4, 5, 6, 7)}}
	v := variant{name: "any CPUs"}
	require.Equal(t, "| M | any CPUs | 10 | 1 / 5 | 2 / 6 | 3 / 4 of 4 | 6 / 15 | 2 / 20 = 1:10 | 8 / 100 |",
		row(scenario{name: "M", zones: zones, l3: 2}, v, ours, theirs, ours, theirs))
	require.Equal(t, "-", refusedCell(scenario{zones: zones, l3: 4}, ours, theirs), "a zone is one L3")
	require.Equal(t, "-", refusedCell(scenario{zones: zones, l3: 2}, figures{}, figures{}), "no claim for a whole L3")
}
