// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

func TestLimitJSON(t *testing.T) {
	for text, want := range map[string]contract.Limit{
		`0`:                   0,
		`4096`:                4096,
		`9223372036854775806`: contract.Max - 1,
		`"max"`:               contract.Max,
	} {
		t.Run(text, func(t *testing.T) {
			var got contract.Limit
			require.NoError(t, json.Unmarshal([]byte(text), &got))
			require.Equal(t, want, got)
			back, err := json.Marshal(got)
			require.NoError(t, err)
			require.Equal(t, text, string(back))
		})
	}
	for name, text := range map[string]string{
		"negative":          `-1`,
		"Max as a number":   `9223372036854775807`,
		"beyond int64":      `9223372036854775808`,
		"fraction":          `1.5`,
		"integral fraction": `1.0`,
		"exponent":          `1e3`,
		"number as string":  `"4096"`,
		"other case":        `"Max"`,
		"escaped":           `"m\u0061x"`,
		"empty string":      `""`,
		"boolean":           `true`,
		"object":            `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			var got contract.Limit
			require.Error(t, json.Unmarshal([]byte(text), &got))
		})
	}
	_, err := json.Marshal(contract.Limit(-1))
	require.ErrorContains(t, err, "negative")
	require.Equal(t, "max", contract.Max.String())
	require.Equal(t, "4096", contract.Limit(4096).String())
}

func TestPageSizes(t *testing.T) {
	for text, want := range map[string]struct {
		bytes  int64
		cgroup string
	}{
		"1Ki":   {1 << 10, "1KB"},
		"64Ki":  {64 << 10, "64KB"},
		"2Mi":   {2 << 20, "2MB"},
		"512Mi": {512 << 20, "512MB"},
		"1Gi":   {1 << 30, "1GB"},
		"16Gi":  {16 << 30, "16GB"},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := contract.ParsePageSize(text)
			require.NoError(t, err)
			require.Equal(t, want.bytes, got)
			require.Equal(t, text, contract.FormatPageSize(got))
			require.Equal(t, want.cgroup, contract.CgroupPageSize(text))
		})
	}
	for name, text := range map[string]string{
		"empty":         "",
		"no unit":       "2048",
		"unit alone":    "Mi",
		"decimal unit":  "2M",
		"cgroup form":   "2MB",
		"bigger unit":   "2Ti",
		"other case":    "2mi",
		"not shortest":  "1024Ki",
		"no power":      "3Mi",
		"zero":          "0Mi",
		"negative":      "-2Mi",
		"sign":          "+2Mi",
		"leading zero":  "02Mi",
		"fraction":      "0.5Gi",
		"space":         "2 Mi",
		"overflow":      "8589934592Gi",
		"trailing text": "2Mi\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.ParsePageSize(text)
			require.ErrorContains(t, err, "page size")
		})
	}
}
