// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const hexUID = "4f1c2a7e0b3d4c5e8f60718293a4b5c6"

func TestKeyNames(t *testing.T) {
	k := contract.Key{ClaimUID: claimUID, Index: 12}
	require.Equal(t, claimUID+"-12", k.DeviceName())
	require.Equal(t, "dra.cpumem/claim="+claimUID+"-12", k.CDIDevice())
	require.Equal(t, "DRA_CPUMEM_"+hexUID+"_12", k.EnvName())
}

func TestParseEnvName(t *testing.T) {
	for name, index := range map[string]int{
		"DRA_CPUMEM_" + hexUID + "_0":    0,
		"DRA_CPUMEM_" + hexUID + "_31":   31,
		"DRA_CPUMEM_" + hexUID + "_1023": 1023,
	} {
		t.Run(name, func(t *testing.T) {
			k, err := contract.ParseEnvName(name)
			require.NoError(t, err)
			require.Equal(t, contract.Key{ClaimUID: claimUID, Index: index}, k)
		})
	}
	for name, variable := range map[string]string{
		"prefix alone":      "DRA_CPUMEM_",
		"no index":          "DRA_CPUMEM_" + hexUID,
		"empty index":       "DRA_CPUMEM_" + hexUID + "_",
		"index too great":   "DRA_CPUMEM_" + hexUID + "_1024",
		"negative index":    "DRA_CPUMEM_" + hexUID + "_-1",
		"signed index":      "DRA_CPUMEM_" + hexUID + "_+1",
		"padded index":      "DRA_CPUMEM_" + hexUID + "_01",
		"text after index":  "DRA_CPUMEM_" + hexUID + "_1_2",
		"upper case UID":    "DRA_CPUMEM_4F1C2A7E0B3D4C5E8F60718293A4B5C6_0",
		"UID with dashes":   "DRA_CPUMEM_" + claimUID + "_0",
		"short UID":         "DRA_CPUMEM_" + hexUID[1:] + "_0",
		"no hex":            "DRA_CPUMEM_" + hexUID[1:] + "g_0",
		"other prefix":      "DRA_CPUSET_" + hexUID + "_0",
		"no prefix":         hexUID + "_0",
		"two prefixes":      "DRA_CPUMEM_DRA_CPUMEM_" + hexUID + "_0",
		"path in the UID":   "DRA_CPUMEM_../../../../../../../../etc/pw_0",
		"name with newline": "DRA_CPUMEM_" + hexUID + "_0\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.ParseEnvName(variable)
			require.ErrorContains(t, err, "variable")
		})
	}
}

func TestClaimUIDOfFile(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		uid  string
		ours bool
	}{
		"claim file":     {file: "dra.cpumem-claim_" + claimUID + ".json", uid: claimUID, ours: true},
		"no UID":         {file: "dra.cpumem-claim_x.json", ours: true},
		"empty UID":      {file: "dra.cpumem-claim_.json", ours: true},
		"upper case UID": {file: "dra.cpumem-claim_4F1C2A7E-0B3D-4C5E-8F60-718293A4B5C6.json", ours: true},
		"other suffix":   {file: "dra.cpumem-claim_" + claimUID + ".yaml", ours: true},
		"backup":         {file: "dra.cpumem-claim_" + claimUID + ".json.bak", ours: true},
		"temporary":      {file: "." + contract.ClaimFile(claimUID) + ".tmp-1"},
		"node file":      {file: contract.NodeFile},
		"announcement":   {file: contract.ActuatorFile},
		"foreign":        {file: "vendor.example-gpu.json"},
		"prefix only":    {file: "dra.cpumem-claim.json"},
	} {
		t.Run(name, func(t *testing.T) {
			uid, ours := contract.ClaimUIDOfFile(tc.file)
			require.Equal(t, tc.uid, uid)
			require.Equal(t, tc.ours, ours)
		})
	}
	uid, ours := contract.ClaimUIDOfFile(contract.ClaimFile(otherUID))
	require.True(t, ours)
	require.Equal(t, otherUID, uid)
}

func TestKeysOf(t *testing.T) {
	require.Equal(t,
		[]contract.Key{{ClaimUID: claimUID, Index: 2}, {ClaimUID: claimUID, Index: 10}, {ClaimUID: otherUID, Index: 0}},
		contract.KeysOf(map[contract.Key]bool{
			{ClaimUID: otherUID, Index: 0}: true, {ClaimUID: claimUID, Index: 10}: true, {ClaimUID: claimUID, Index: 2}: true,
		}))
}

// The pattern is the form of RFC 4122.
func TestValidUID(t *testing.T) {
	pattern := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	require.True(t, contract.ValidUID(claimUID))
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(claimUID)
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			switch b := rapid.SampledFrom([]byte("09afgAF/:`-\n\x00\xff")).Draw(t, "byte"); rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				text[at] = b
			case 1:
				text = slices.Insert(text, at, b)
			default:
				text = slices.Delete(text, at, at+1)
			}
		}
		require.Equal(t, pattern.Match(text), contract.ValidUID(string(text)), "%q", text)
	})
}
