// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// The golden files of a released version are never changed: a program of that
// version wrote such bytes on a node. -update is for an unreleased version.
var update = flag.Bool("update", false, "rewrite the golden files of the current, unreleased version")

const goldenDir = "testdata/" + contract.Version

func sorted[T cmp.Ordered](s []T) []T {
	slices.Sort(s)
	return s
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(goldenDir, name+".json")
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "a new record needs a golden file: run the test with -update")
	require.Equal(t, string(want), string(got))
}

// goldenValue returns the value of the decision's variable.
func goldenValue(t testing.TB, d contract.Decision) string {
	env, err := d.Env(contract.Key{ClaimUID: claimUID})
	require.NoError(t, err)
	_, value, _ := strings.Cut(env, "=")
	return value
}

func TestGoldenBytes(t *testing.T) {
	written := map[string]bool{}
	run := func(name string, encode func() ([]byte, error)) {
		written[name+".json"] = true
		t.Run(name, func(t *testing.T) {
			data, err := encode()
			require.NoError(t, err)
			golden(t, name, data)
		})
	}
	for name, r := range goldenClaims() {
		run(name, func() ([]byte, error) { return contract.EncodeClaim(r) })
	}
	for name, s := range goldenNodes() {
		run(name, func() ([]byte, error) { return contract.EncodeNode(s) })
	}
	for name, a := range goldenAnnouncements() {
		run(name, func() ([]byte, error) { return contract.EncodeAnnouncement(a) })
	}
	for name, d := range goldenDecisions() {
		run(name, func() ([]byte, error) { return []byte(goldenValue(t, d) + "\n"), nil })
	}
	for _, name := range goldenNames(t, goldenDir) {
		require.True(t, written[name], "%s is a golden file of no record", name)
	}
}

func TestGoldenValues(t *testing.T) {
	read := func(t *testing.T, name string) []byte {
		data, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
		require.NoError(t, err)
		return data
	}
	for name, want := range goldenClaims() {
		t.Run(name, func(t *testing.T) {
			got, err := contract.DecodeClaim(contract.ClaimFile(want.UID), read(t, name))
			require.NoError(t, err)
			require.Empty(t, gocmp.Diff(want, got, sets))
		})
	}
	for name, want := range goldenNodes() {
		t.Run(name, func(t *testing.T) {
			got, err := contract.DecodeNode(read(t, name))
			require.NoError(t, err)
			require.Empty(t, gocmp.Diff(want, got, sets))
		})
	}
	for name, want := range goldenAnnouncements() {
		t.Run(name, func(t *testing.T) {
			got, err := contract.DecodeAnnouncement(read(t, name))
			require.NoError(t, err)
			require.Empty(t, gocmp.Diff(want, got, sets))
		})
	}
	for name, want := range goldenDecisions() {
		t.Run(name, func(t *testing.T) {
			got, err := contract.DecodeDecision(strings.TrimSuffix(string(read(t, name)), "\n"), features())
			require.NoError(t, err)
			require.Empty(t, gocmp.Diff(want, got, sets))
		})
	}
}

// The golden files of all released versions can be decoded for ever, whatever
// records this version writes.
func TestGoldenOfAllVersionsDecode(t *testing.T) {
	dirs, err := filepath.Glob("testdata/v*")
	require.NoError(t, err)
	require.Contains(t, dirs, goldenDir)
	for _, dir := range dirs {
		for _, name := range goldenNames(t, dir) {
			t.Run(filepath.Join(dir, name), func(t *testing.T) {
				data, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				require.NoError(t, decodeByName(name, data))
			})
		}
	}
}

func decodeByName(name string, data []byte) error {
	var err error
	switch kind, _, _ := strings.Cut(strings.TrimSuffix(name, ".json"), "-"); kind {
	case "claim":
		if _, err = contract.DecodeClaim(contract.ClaimFile(claimUID), data); err == nil {
			_, err = contract.DecodeClaimEntries(claimUID, data)
		}
	case "node":
		_, err = contract.DecodeNode(data)
	case "announcement":
		_, err = contract.DecodeAnnouncement(data)
	case "decision":
		_, err = contract.DecodeDecision(strings.TrimSuffix(string(data), "\n"), features())
	default:
		panic("golden file of unknown kind: " + name)
	}
	return err
}

func goldenNames(t testing.TB, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// The golden files have the documented shape, also after a rewrite with -update.
func TestGoldenShape(t *testing.T) {
	several, err := contract.EncodeClaim(goldenClaims()["claim-several"])
	require.NoError(t, err)
	entries, err := contract.DecodeClaimEntries(claimUID, several)
	require.NoError(t, err)
	require.Equal(t, []contract.Key{{ClaimUID: claimUID, Index: 0}, {ClaimUID: claimUID, Index: 1}, {ClaimUID: claimUID, Index: 2}},
		contract.KeysOf(entries))
	for key, env := range entries {
		require.True(t, strings.HasPrefix(env, key.EnvName()+"={"), env)
		require.NotContains(t, env, " ")
	}
	require.Equal(t, 3, strings.Count(string(several), contract.CPUSetEnvPrefix+claimUID+"=4-7,12-13,15"),
		"each device carries the union of the claim's CPUs")
	require.Equal(t, "4-7,12-13,15", goldenClaims()["claim-several"].CPUs().String())

	memory, err := contract.EncodeClaim(goldenClaims()["claim-memory-hugepages"])
	require.NoError(t, err)
	require.NotContains(t, string(memory), contract.CPUSetEnvPrefix, "no exclusive CPUs, no cpuset variable")
	require.NotContains(t, string(memory), "hooks")
	for _, name := range slices.Sorted(maps.Keys(goldenClaims())) {
		data, err := contract.EncodeClaim(goldenClaims()[name])
		require.NoError(t, err)
		require.Regexp(t, regexp.MustCompile(`"cdiVersion": "0\.6\.0"`), string(data), "%s: an old runtime must accept it", name)
	}
}
