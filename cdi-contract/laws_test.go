// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// sets compares sets by ==.
var sets = cmpopts.EquateComparable(contract.CPUSet{}, contract.NUMANodeSet{})

// same fails if the decisions differ. nil and empty are equal: both mean "not
// decided".
func same(t *rapid.T, want, got contract.Decision) {
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), sets); diff != "" {
		t.Fatalf("want -, got +\n%s", diff)
	}
}

func TestCombineLaws(t *testing.T) {
	none := contract.Decision{V: contract.Version}
	t.Run("commutative", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		same(t, contract.Combine(a, b), contract.Combine(b, a))
	}))
	t.Run("associative", rapid.MakeCheck(func(t *rapid.T) {
		a, b, c := genDecision().Draw(t, "a"), genDecision().Draw(t, "b"), genDecision().Draw(t, "c")
		same(t, contract.Combine(contract.Combine(a, b), c), contract.Combine(a, contract.Combine(b, c)))
	}))
	t.Run("identity", rapid.MakeCheck(func(t *rapid.T) {
		a := genDecision().Draw(t, "a")
		same(t, a, contract.Combine(a, none))
		same(t, a, contract.Combine(none, a))
	}))
	t.Run("sets are idempotent", rapid.MakeCheck(func(t *rapid.T) {
		a := genDecision().Draw(t, "a")
		twice := contract.Combine(a, a)
		require.Equal(t, a.CPUs, twice.CPUs)
		require.Equal(t, a.Mems, twice.Mems)
		require.ElementsMatch(t, a.Requires, twice.Requires)
		require.Equal(t, a.MemoryPolicy, twice.MemoryPolicy)
		require.Equal(t, a.OOMScoreAdj, twice.OOMScoreAdj)
	}))
	t.Run("the lower OOM score holds", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		c := contract.Combine(a, b)
		require.False(t, a.LowersOOMScore(c.OOMScoreAdj) || b.LowersOOMScore(c.OOMScoreAdj), "neither is lower")
		require.Contains(t, []*int{a.OOMScoreAdj, b.OOMScoreAdj}, c.OOMScoreAdj)
	}))
	t.Run("no quota absorbs", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		lifted := a.Quota == contract.QuotaNone || b.Quota == contract.QuotaNone
		require.Equal(t, lifted, contract.Combine(a, b).Quota == contract.QuotaNone)
	}))
	t.Run("max absorbs", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		a.Memory = &contract.Memory{High: contract.Max}
		a.Hugepages = map[string]contract.Limit{"2Mi": contract.Max}
		c := contract.Combine(a, b)
		require.Equal(t, contract.Max, c.Memory.High)
		require.Equal(t, contract.Max, c.Hugepages["2Mi"])
	}))
	t.Run("arguments stay as they are", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		before := []string{value(t, a), value(t, b)}
		contract.Combine(a, b)
		require.Equal(t, before, []string{value(t, a), value(t, b)})
	}))
	t.Run("valid in, valid out", rapid.MakeCheck(func(t *rapid.T) {
		a, b := genDecision().Draw(t, "a"), genDecision().Draw(t, "b")
		require.NoError(t, contract.Combine(a, b).Validate())
	}))
}

func TestMergeIsOrderFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.Custom(func(t *rapid.T) contract.Key {
			return contract.Key{ClaimUID: genUID().Draw(t, "uid"), Index: rapid.IntRange(0, 3).Draw(t, "index")}
		})
		decisions := rapid.MapOfN(keys, genDecision(), 0, 5).Draw(t, "decisions")
		merged := contract.Merge(decisions)
		for range 3 {
			order := rapid.Permutation(slices.Collect(maps.Keys(decisions))).Draw(t, "order")
			folded := contract.Decision{V: contract.Version}
			for _, k := range order {
				folded = contract.Combine(folded, decisions[k])
			}
			same(t, merged, folded)
		}
	})
}

// I8: equal records give equal bytes, and the bytes give the record.
func TestEncodeDecodeIdentity(t *testing.T) {
	t.Run("decision", rapid.MakeCheck(func(t *rapid.T) {
		d := genDecision().Draw(t, "decision")
		k := contract.Key{ClaimUID: genUID().Draw(t, "uid"), Index: rapid.IntRange(0, 1023).Draw(t, "index")}
		env := twice(t, func() (string, error) { return d.Env(k) })
		gotKey, got, ours, err := contract.ParseEnv(env, append(features(), "a", "b", "c"))
		require.NoError(t, err)
		require.True(t, ours)
		require.Equal(t, k, gotKey)
		require.Empty(t, gocmp.Diff(d, got, sets))
	}))
	t.Run("claim", rapid.MakeCheck(func(t *rapid.T) {
		r := genClaim().Draw(t, "claim")
		data := twice(t, func() ([]byte, error) { return contract.EncodeClaim(r) })
		got, err := contract.DecodeClaim(contract.ClaimFile(r.UID), data)
		require.NoError(t, err)
		require.Empty(t, gocmp.Diff(r, got, sets))
		entries, err := contract.DecodeClaimEntries(r.UID, data)
		require.NoError(t, err)
		require.Len(t, entries, len(r.Results))
	}))
	t.Run("node", rapid.MakeCheck(func(t *rapid.T) {
		s := genNode().Draw(t, "node")
		data := twice(t, func() ([]byte, error) { return contract.EncodeNode(s) })
		got, err := contract.DecodeNode(data)
		require.NoError(t, err)
		require.Empty(t, gocmp.Diff(s, got, sets))
	}))
	t.Run("announcement", rapid.MakeCheck(func(t *rapid.T) {
		a := genAnnouncement().Draw(t, "announcement")
		data := twice(t, func() ([]byte, error) { return contract.EncodeAnnouncement(a) })
		got, err := contract.DecodeAnnouncement(data)
		require.NoError(t, err)
		require.Empty(t, gocmp.Diff(a, got))
	}))
}

func value(t *rapid.T, d contract.Decision) string {
	env, err := d.Env(contract.Key{ClaimUID: claimUID})
	require.NoError(t, err)
	return env
}

func twice[T any](t *rapid.T, encode func() (T, error)) T {
	a, err := encode()
	require.NoError(t, err)
	b, err := encode()
	require.NoError(t, err)
	require.Equal(t, a, b)
	return a
}

func TestTextLaws(t *testing.T) {
	t.Run("text of a parsed list is normal", rapid.MakeCheck(func(t *rapid.T) {
		loose := rapid.StringMatching(`[0-3]?[0-9](-4[0-9])?(,[0-3]?[0-9](-4[0-9])?){0,4}`).Draw(t, "list")
		cpus, err := contract.ParseCPUs(loose)
		require.NoError(t, err)
		var again contract.CPUSet
		require.NoError(t, again.UnmarshalText([]byte(cpus.String())))
		require.Equal(t, cpus, again)
	}))
	t.Run("page sizes", rapid.MakeCheck(func(t *rapid.T) {
		size := int64(1) << rapid.IntRange(10, 60).Draw(t, "shift")
		got, err := contract.ParsePageSize(contract.FormatPageSize(size))
		require.NoError(t, err)
		require.Equal(t, size, got)
	}))
	t.Run("names of variables", rapid.MakeCheck(func(t *rapid.T) {
		k := contract.Key{ClaimUID: genUID().Draw(t, "uid"), Index: rapid.IntRange(0, 1023).Draw(t, "index")}
		got, err := contract.ParseEnvName(k.EnvName())
		require.NoError(t, err)
		require.Equal(t, k, got)
	}))
}
