// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

func TestExcerpt(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want string
	}{
		"short":                {in: "DRA_CPUMEM_X", want: "DRA_CPUMEM_X"},
		"as long as it may be": {in: strings.Repeat("a", 20), want: strings.Repeat("a", 20)},
		"cut":                  {in: strings.Repeat("a", 21), want: strings.Repeat("a", 20) + "... (1 bytes more)"},
		"not printable":        {in: "a\x7f\n\x00b", want: "a???b"},
		"cut inside a rune":    {in: strings.Repeat("a", 19) + "é", want: strings.Repeat("a", 19) + "?... (1 bytes more)"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, contract.Excerpt(c.in, 20)) })
	}
}

// TestParseEnvBounded covers A60: whatever a pod's author writes into a
// variable, the error about the variable is one readable line.
func TestParseEnvBounded(t *testing.T) {
	const name = "DRA_CPUMEM_00000000000040008000000000000011_0="
	huge := func(s string) string { return strings.Repeat(s, 600<<10/len(s)) }
	entries := map[string]string{
		"control characters in the value": name + huge("\x7f"),
		"quotes in the value":             name + huge(`"`),
		"runes in the name":               "DRA_CPUMEM_" + huge("é") + "=",
		"a name without a value":          "DRA_CPUMEM_" + huge("x"),
		"a long member":                   name + `{"v":"v1","` + strings.Repeat("V", 60<<10) + `":1,"V":1}`,
		"a long version":                  name + `{"v":"` + strings.Repeat("\x7f", 60<<10) + `","requires":[]}`,
		"a long feature":                  name + `{"v":"v1","requires":["` + strings.Repeat("é", 20<<10) + `"]}`,
		"a long list":                     name + `{"v":"v1","requires":[],"cpus":"` + strings.Repeat("x", 60<<10) + `"}`,
		"a long number":                   name + `{"v":` + strings.Repeat("1", 60<<10) + `}`,
	}
	for name, entry := range entries {
		t.Run(name, func(t *testing.T) {
			_, _, ours, err := contract.ParseEnv(entry, nil)
			require.True(t, ours)
			require.Error(t, err)
			requireBounded(t, err)
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.SampledFrom([]string{contract.EnvPrefix, name, name + `{"v":"v1",`}).Draw(t, "begin") +
			rapid.String().Draw(t, "rest")
		if _, _, _, err := contract.ParseEnv(entry, nil); err != nil {
			requireBounded(t, err)
		}
	})
}

func requireBounded(t require.TestingT, err error) {
	require.LessOrEqual(t, len(err.Error()), 400)
	for _, b := range []byte(err.Error()) {
		require.True(t, b >= ' ' && b <= '~', "byte %#x", b)
	}
}
