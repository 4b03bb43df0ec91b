// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

func TestParseList(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []int
		err  string
	}{
		"one":                 {in: "0", want: []int{0}},
		"range":               {in: "2-4", want: []int{2, 3, 4}},
		"range of one":        {in: "2-2", want: []int{2}},
		"mixed":               {in: "0-1,8,10-11", want: []int{0, 1, 8, 10, 11}},
		"unsorted":            {in: "8,0-1", want: []int{0, 1, 8}},
		"overlapping":         {in: "0-3,2-5,2", want: []int{0, 1, 2, 3, 4, 5}},
		"leading zero":        {in: "007", want: []int{7}},
		"greatest id":         {in: "65536", want: []int{65536}},
		"empty":               {in: "", err: "not an id"},
		"above greatest":      {in: "65537", err: "between 0 and 65536"},
		"long number":         {in: "1000000000000000000000", err: "not an id"},
		"descending":          {in: "4-2", err: "descends"},
		"trailing comma":      {in: "1,", err: "not an id"},
		"open range":          {in: "1-", err: "not an id"},
		"negative":            {in: "-1", err: "not an id"},
		"two dashes":          {in: "1-2-3", err: "not an id"},
		"stride":              {in: "0-8:2", err: "not an id"},
		"space":               {in: "0, 1", err: "not an id"},
		"newline":             {in: "0\n", err: "not an id"},
		"sign":                {in: "+1", err: "not an id"},
		"other digits":        {in: "٣", err: "not an id"},
		"too many repetition": {in: strings.Repeat("0-65536,", 8) + "0", err: "names more than"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contract.ParseList(tc.in)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestFormatList(t *testing.T) {
	for want, ids := range map[string][]int{
		"":            nil,
		"0":           {0},
		"0-1":         {0, 1},
		"0,2":         {0, 2},
		"0-3,8,10-11": {0, 1, 2, 3, 8, 10, 11},
	} {
		require.Equal(t, want, contract.FormatList(ids))
	}
}
