// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// A54: this version reads the files of a newer version. The files in
// testdata/skew are written by hand; each case is the documented outcome.
func TestNewerWriterOlderReader(t *testing.T) {
	file := contract.ClaimFile(claimUID)
	key := contract.Key{ClaimUID: claimUID}
	frontend := func(data []byte) error { _, err := contract.DecodeClaim(file, data); return err }
	actuator := func(known ...string) func([]byte) error {
		return func(data []byte) error {
			entries, err := contract.DecodeClaimEntries(claimUID, data)
			if err == nil {
				_, _, _, err = contract.ParseEnv(entries[key], known)
			}
			return err
		}
	}
	value := func(known ...string) func([]byte) error {
		return func(data []byte) error {
			_, err := contract.DecodeDecision(strings.TrimSuffix(string(data), "\n"), known)
			return err
		}
	}
	node := func(data []byte) error { _, err := contract.DecodeNode(data); return err }
	pod := func(known ...string) func([]byte) error {
		return func(data []byte) error {
			s, err := contract.DecodeNode(data)
			if err == nil {
				err = s.Pods[podUID].CheckRequired(known)
			}
			return err
		}
	}
	announcement := func(data []byte) error {
		a, err := contract.DecodeAnnouncement(data)
		if err == nil {
			_, err = a.CommonVersion()
		}
		return err
	}
	golden := func(name string) string { return filepath.Join("..", contract.Version, name) }
	used := map[string]bool{}
	for _, tc := range []struct {
		outcome string
		file    string
		read    func([]byte) error
		err     string // empty: the file is read
	}{
		{"optional member of a decision is ignored", "decision-optional", value(), ""},
		{"required feature is refused by who does not know it", "decision-requires", value(), `requires feature "latency"`},
		{"required feature is taken by who knows it", "decision-requires", value("latency"), ""},
		{"decision of another version is refused naming it", "decision-v2", value(), `version "v2"`},

		{"frontend reads a claim with optional members (rollback)", "claim-optional", frontend, ""},
		{"actuator applies a claim with optional members", "claim-optional", actuator(), ""},
		{"frontend accounts for a claim whose feature it does not know (rollback)", "claim-requires", frontend, ""},
		{"actuator refuses a claim whose feature it does not know", "claim-requires", actuator(), `requires feature "latency"`},
		{"actuator that knows the feature applies it", "claim-requires", actuator("latency"), ""},
		{"frontend refuses a claim of another version: its CPUs are unknown", "claim-v2", frontend, `version "v2"`},
		{"actuator refuses a decision of another version", "claim-v2", actuator(), `version "v2"`},
		{"a record of another version does not matter to the actuator", "claim-v2-decision-v1", actuator(), ""},
		{"but does to the frontend", "claim-v2-decision-v1", frontend, `version "v2"`},

		{"frontend accounts for a claim with a memory policy", golden("claim-memory-policy"), frontend, ""},
		{"actuator without memory policies refuses one", golden("claim-memory-policy"), actuator(), `requires feature "memoryPolicy"`},
		{
			outcome: "actuator without the mode refuses it",
			file:    golden("claim-memory-policy"),
			read:    actuator(contract.FeatureMemoryPolicy),
			err:     `requires feature "weightedInterleave"`,
		},
		{"actuator that knows both applies it", golden("claim-memory-policy"), actuator(features()...), ""},
		{"actuator that knows policies applies one", golden("decision-policy"), value(contract.FeatureMemoryPolicy), ""},
		{"what an older frontend writes has no policy and requires nothing", golden("claim-cpu"), actuator(), ""},

		{"frontend accounts for a claim with a partition", golden("claim-partition"), frontend, ""},
		{"actuator without partitions refuses one", golden("claim-partition"), actuator(policies()...), `requires feature "partition"`},
		{"actuator that knows partitions applies one", golden("claim-partition"), actuator(contract.FeaturePartition), ""},

		{"frontend accounts for a claim with an OOM score", golden("claim-oom-score"), frontend, ""},
		{"actuator without OOM scores refuses one", golden("claim-oom-score"), actuator(policies()...), `requires feature "oomScoreAdj"`},
		{"actuator that knows OOM scores applies one", golden("claim-oom-score"), actuator(contract.FeatureOOMScore), ""},

		{"frontend reads a claim with mounts", golden("claim-hugetlbfs"), frontend, ""},
		{"actuator that knows no mounts reads a claim's decisions", golden("claim-hugetlbfs"), actuator(), ""},

		{"optional members of the node state are ignored", "node-optional", node, ""},
		{"node state whose pod requires a feature is read", "node-requires", node, ""},
		{"pod whose feature is not known is refused", "node-requires", pod(features()...), `requires feature "latency"`},
		{"pod whose feature is known is served", "node-requires", pod("latency"), ""},
		{"actuator without partitions refuses a pod with one", golden("node-partitions"), pod(policies()...), `requires feature "partition"`},
		{"node state of another version is refused", "node-v2", node, `version "v2"`},
		{"a cgroup file off the list is no optional addition", "node-file", node, "not on the contract's list"},

		{"optional members of an announcement are ignored; v1 is common", "announcement-optional", announcement, ""},
		{"actuator that no longer reads v1: no new claims", "announcement-reads-v2", announcement, "upgrade the older"},
		{"announcement of another version is refused", "announcement-v2", announcement, `version "v2"`},
	} {
		used[tc.file+".json"] = true
		t.Run(tc.outcome, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", "skew", tc.file+".json"))
			require.NoError(t, err)
			err = tc.read(data)
			if tc.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.err)
		})
	}
	for _, name := range goldenNames(t, "testdata/skew") {
		require.True(t, used[name], "%s has no documented outcome", name)
	}
}

// Ignored members do not change the rest of a record.
func TestOptionalMembersDoNotChangeTheRest(t *testing.T) {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join("testdata", "skew", name+".json"))
		require.NoError(t, err)
		return data
	}
	r, err := contract.DecodeClaim(contract.ClaimFile(claimUID), read("claim-optional"))
	require.NoError(t, err)
	require.Equal(t, goldenClaims()["claim-cpu"], r)
	s, err := contract.DecodeNode(read("node-optional"))
	require.NoError(t, err)
	require.Equal(t, goldenNodes()["node"], s)
	a, err := contract.DecodeAnnouncement(read("announcement-optional"))
	require.NoError(t, err)
	require.Equal(t, []string{"latency"}, a.Features)
	v, err := a.CommonVersion()
	require.NoError(t, err)
	require.Equal(t, contract.Version, v, "the highest version both know")
}

// A frontend that was rolled back changes the pods in a newer frontend's claim
// file and nothing else: containers run with the rest.
func TestWithPodsKeepsWhatItDoesNotKnow(t *testing.T) {
	file := contract.ClaimFile(claimUID)
	was, err := os.ReadFile(filepath.Join("testdata", "skew", "claim-optional.json"))
	require.NoError(t, err)
	before, err := contract.DecodeClaimEntries(claimUID, was)
	require.NoError(t, err)
	record, err := contract.DecodeClaim(file, was)
	require.NoError(t, err)

	pods := append(record.Pods, contract.PodRecord{UID: "0d9e8f7a-6b5c-4d3e-9f20-112233445577", QOS: contract.LevelBestEffort})
	is, err := contract.WithPods(file, was, pods)
	require.NoError(t, err)
	after, err := contract.DecodeClaimEntries(claimUID, is)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Contains(t, string(is), "DRA_LATER=1")
	require.Contains(t, string(is), "queue", "a member of the record that is not known")
	require.Contains(t, string(is), "shift", "a member of a pod that is not known")
	changed, err := contract.DecodeClaim(file, is)
	require.NoError(t, err)
	record.Pods = pods
	require.Equal(t, record, changed)

	_, err = contract.WithPods(file, was, []contract.PodRecord{{UID: "x"}})
	require.ErrorContains(t, err, "pod UID")
	_, err = contract.WithPods(file, []byte("{}"), pods)
	require.Error(t, err)
}
