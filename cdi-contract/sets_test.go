// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestParseCPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []int
		err  string
	}{
		"one":            {in: "0", want: []int{0}},
		"range":          {in: "2-4", want: []int{2, 3, 4}},
		"range of one":   {in: "2-2", want: []int{2}},
		"mixed":          {in: "0-1,8,10-11", want: []int{0, 1, 8, 10, 11}},
		"unsorted":       {in: "8,0-1", want: []int{0, 1, 8}},
		"overlapping":    {in: "0-3,2-5,2", want: []int{0, 1, 2, 3, 4, 5}},
		"leading zero":   {in: "007", want: []int{7}},
		"greatest id":    {in: "65536", want: []int{65536}},
		"empty":          {in: "", want: []int{}},
		"above greatest": {in: "65537", err: "between 0 and 65536"},
		"long number":    {in: "1000000000000000000000", err: "not an id"},
		"descending":     {in: "4-2", err: "descends"},
		"trailing comma": {in: "1,", err: "not an id"},
		"open range":     {in: "1-", err: "not an id"},
		"negative":       {in: "-1", err: "not an id"},
		"two dashes":     {in: "1-2-3", err: "not an id"},
		"stride":         {in: "0-8:2", err: "not an id"},
		"space":          {in: "0, 1", err: "not an id"},
		"newline":        {in: "0\n", err: "not an id"},
		"sign":           {in: "+1", err: "not an id"},
		"other digits":   {in: "٣", err: "not an id"},
		"repeated":       {in: strings.Repeat("0-3,", 8) + "0", want: []int{0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contract.ParseCPUs(tc.in)
			nodes, nodesErr := contract.ParseNUMANodes(tc.in)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.ErrorContains(t, nodesErr, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.List())
			require.NoError(t, nodesErr)
			require.Equal(t, tc.want, nodes.List())
		})
	}
}

func TestSetText(t *testing.T) {
	for want, ids := range map[string][]int{
		"":            nil,
		"0":           {0},
		"0-1":         {0, 1},
		"0,2":         {2, 0},
		"0-3,8,10-11": {10, 0, 11, 1, 2, 3, 8, 8},
	} {
		require.Equal(t, want, contract.CPUs(ids...).String())
		require.Equal(t, want, contract.NUMANodes(ids...).String())
	}
}

// Each set has one text in JSON, and an empty set has none.
func TestSetInJSON(t *testing.T) {
	for text, say := range map[string]string{
		`"0-3,8"`: "",
		`"3,0-2"`: `list "3,0-2" is not normalised, want "0-3"`,
		`"0,1"`:   `want "0-1"`,
		`"01"`:    `want "1"`,
		`""`:      "empty list",
		`"x"`:     "not an id",
		`3`:       "cannot unmarshal number",
	} {
		var set contract.CPUSet
		err := json.Unmarshal([]byte(text), &set)
		if say != "" {
			require.ErrorContains(t, err, say, text)
			require.Zero(t, set, text)
			continue
		}
		require.NoError(t, err)
		again, err := json.Marshal(set)
		require.NoError(t, err)
		require.Equal(t, text, string(again))
	}
}

// The operations are the operations of sets, and equal sets are equal by ==
// however they were made.
func TestSetLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []int { return rapid.SliceOfN(rapid.IntRange(0, 12), 0, 8).Draw(t, name) }
		x, y := draw("x"), draw("y")
		a, b := contract.CPUs(x...), contract.CPUs(y...)
		var union, intersection, difference []int
		for id := range 13 {
			inA, inB := slices.Contains(x, id), slices.Contains(y, id)
			require.Equal(t, inA, a.Contains(id))
			if inA || inB {
				union = append(union, id)
			}
			if inA && inB {
				intersection = append(intersection, id)
			}
			if inA && !inB {
				difference = append(difference, id)
			}
		}
		require.Equal(t, contract.CPUs(union...), a.Union(b))
		require.Equal(t, contract.CPUs(intersection...), a.Intersection(b))
		require.Equal(t, contract.CPUs(difference...), a.Difference(b))
		require.Equal(t, len(intersection) > 0, a.Overlaps(b))
		require.Equal(t, len(difference) == 0, a.IsSubsetOf(b))
		require.Equal(t, len(union), a.Union(b).Size())
		require.Equal(t, len(x) == 0, a.IsEmpty())
		require.True(t, a == contracttest.CPUs(a.String()))
		var some []int
		for id := range a.All() {
			if some = append(some, id); len(some) == 2 {
				break
			}
		}
		require.Equal(t, a.List()[:min(2, a.Size())], append([]int{}, some...))
	})
}
