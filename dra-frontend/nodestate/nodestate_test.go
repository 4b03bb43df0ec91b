// SPDX-License-Identifier: Apache-2.0

package nodestate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

var base = nodestate.Base{BootID: "boot", CPUs: contract.CPUs(0, 1, 2, 3), Mems: contract.NUMANodes(0), Protect: true}

func uid(i int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", i) }

func claim(i int, pod contract.PodRecord, decisions ...contract.Decision) contract.ClaimRecord {
	r := contract.ClaimRecord{UID: uid(i), Pods: []contract.PodRecord{pod}}
	for _, d := range decisions {
		r.Results = append(r.Results, contract.ResultRecord{Decision: d})
	}
	return r
}

func TestSumsAlongTheTree(t *testing.T) {
	guaranteed := contract.PodRecord{UID: uid(101)}
	burstable := contract.PodRecord{UID: uid(102), QOS: contract.LevelBurstable, Hugepages: map[string]contract.Limit{"2Mi": 4 << 20}}
	bestEffort := contract.PodRecord{UID: uid(103), QOS: contract.LevelBestEffort}
	memory := func(min, low contract.Limit) contract.Decision {
		return contract.Decision{Memory: &contract.Memory{Min: min, Low: low, High: contract.Max, Max: contract.Max}}
	}
	s, err := nodestate.Compute(base, []contract.ClaimRecord{
		claim(1, guaranteed, memory(100, 0), memory(10, 0)),
		claim(2, burstable, memory(0, 7), contract.Decision{CPUs: contracttest.CPUs("1"),
			Hugepages: map[string]contract.Limit{"2Mi": 8 << 20}}),
		claim(3, burstable, contract.Decision{CPUs: contracttest.CPUs("3"),
			Hugepages: map[string]contract.Limit{"2Mi": 2 << 20, "1Gi": contract.Max}}),
		claim(4, bestEffort, memory(5, 0)),
	})
	require.NoError(t, err)
	require.NoError(t, func() error { _, err := contract.EncodeNode(s); return err }())
	require.Equal(t, contract.Shared{CPUs: contracttest.CPUs("0,2"), Mems: contracttest.NUMANodes("0")}, s.Shared)
	require.Equal(t, map[string]contract.PodState{
		uid(101): {Claims: []string{uid(1)}, Cgroup: contract.Files{"memory.min": "110"}},
		uid(102): {Claims: []string{uid(2), uid(3)}, Cgroup: contract.Files{
			"memory.low": "7",
			// The pod's own 4Mi, and the 8Mi and 2Mi of its claims.
			"hugetlb.2MB.max": "14680064", "hugetlb.2MB.rsvd.max": "14680064",
			"hugetlb.1GB.max": "max", "hugetlb.1GB.rsvd.max": "max",
		}},
		uid(103): {Claims: []string{uid(4)}, Cgroup: contract.Files{"memory.min": "5"}},
	}, s.Pods)
	require.Equal(t, map[string]contract.Files{
		"":           {"memory.min": "115", "memory.low": "7"},
		"burstable":  {"memory.low": "7"},
		"besteffort": {"memory.min": "5"},
	}, s.Ancestors)
}

func TestOwnerNoneWritesNoProtection(t *testing.T) {
	b := base
	b.Protect = false
	s, err := nodestate.Compute(b, []contract.ClaimRecord{claim(1, contract.PodRecord{UID: uid(101)},
		contract.Decision{Memory: &contract.Memory{}, Hugepages: map[string]contract.Limit{"2Mi": 0}})})
	require.NoError(t, err)
	require.Empty(t, s.Ancestors)
	require.Equal(t, contract.Files{"hugetlb.2MB.max": "0", "hugetlb.2MB.rsvd.max": "0"}, s.Pods[uid(101)].Cgroup)
}

// I7.
func TestEmptyPoolIsRefused(t *testing.T) {
	_, err := nodestate.Compute(base, []contract.ClaimRecord{claim(1, contract.PodRecord{UID: uid(101)},
		contract.Decision{CPUs: contracttest.CPUs("0-3")})})
	require.ErrorContains(t, err, "no CPU would be left")
}

// The node state of 500 pods fits into the node file.
func TestManyPodsFit(t *testing.T) {
	var claims []contract.ClaimRecord
	for i := range 500 {
		claims = append(claims, claim(i, contract.PodRecord{UID: uid(10000 + i), QOS: contract.LevelBurstable}, contract.Decision{
			Memory: &contract.Memory{Min: 1 << 40, Low: 1 << 40}, Hugepages: map[string]contract.Limit{"2Mi": 1 << 40, "1Gi": 1 << 40},
		}))
	}
	s, err := nodestate.Compute(base, claims)
	require.NoError(t, err)
	data, err := contract.EncodeNode(s)
	require.NoError(t, err)
	require.Less(t, len(data), 256<<10)
}

// I8: the claims of a pod are sorted, whatever their order was.
func TestClaimsOfAPodAreSorted(t *testing.T) {
	pod := contract.PodRecord{UID: uid(101)}
	s, err := nodestate.Compute(base, []contract.ClaimRecord{claim(2, pod), claim(1, pod)})
	require.NoError(t, err)
	require.Equal(t, []string{uid(1), uid(2)}, s.Pods[uid(101)].Claims)
}

// No value stands where nothing is claimed: levels get their former values back.
func TestLevelsWithoutProtection(t *testing.T) {
	s, err := nodestate.Compute(base, []contract.ClaimRecord{claim(1, contract.PodRecord{UID: uid(101)},
		contract.Decision{CPUs: contracttest.CPUs("1")})})
	require.NoError(t, err)
	require.Empty(t, s.Ancestors)
}

// A pod without a limit of hugepages keeps none.
func TestPodWithoutAHugepageLimit(t *testing.T) {
	pod := contract.PodRecord{UID: uid(101), Hugepages: map[string]contract.Limit{"2Mi": contract.Max}}
	claimed := contract.Decision{Hugepages: map[string]contract.Limit{"2Mi": 2 << 20}}
	s, err := nodestate.Compute(base, []contract.ClaimRecord{claim(1, pod, claimed)})
	require.NoError(t, err)
	require.Equal(t, contract.Files{"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max"}, s.Pods[uid(101)].Cgroup)
}

// The pod's quota must not throttle a container whose own quota is lifted, and must bound
// the containers that nothing else bounds.
func TestQuota(t *testing.T) {
	lifted := contract.Decision{CPUs: contracttest.CPUs("1-2"), Quota: contract.QuotaNone}
	for name, c := range map[string]struct {
		limit  *contract.CPULimit
		claims []contract.Decision
		want   string
	}{
		"no limit":               {claims: []contract.Decision{lifted}},
		"nothing lifted":         {limit: &contract.CPULimit{Milli: 500}, claims: []contract.Decision{{CPUs: contracttest.CPUs("1")}}},
		"all others are bounded": {limit: &contract.CPULimit{Milli: 500}, claims: []contract.Decision{lifted}, want: "max 100000"},
		"another one is unbounded": {
			limit: &contract.CPULimit{Milli: 500, Open: true}, claims: []contract.Decision{lifted}, want: "250000 100000",
		},
		"more than an integer has": {
			limit: &contract.CPULimit{Milli: 1e14, Open: true}, claims: []contract.Decision{lifted}, want: "100000200000 100000",
		},
		"two are lifted": {
			limit:  &contract.CPULimit{Milli: 1500, Open: true},
			claims: []contract.Decision{lifted, {CPUs: contracttest.CPUs("3"), Quota: contract.QuotaNone}}, want: "450000 100000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := nodestate.Compute(base, []contract.ClaimRecord{claim(1, contract.PodRecord{UID: uid(101), CPULimit: c.limit}, c.claims...)})
			require.NoError(t, err)
			require.Equal(t, c.want, s.Pods[uid(101)].Quota)
			require.Equal(t, c.want != "", len(s.Pods[uid(101)].Requires) > 0)
			require.NoError(t, s.Validate())
		})
	}
}

// The CPUs of a claim that a pod does not use do not lift the pod's limit. The frontend gives such a pod no limit in the
// record of the claim.
func TestQuotaOfUsedClaims(t *testing.T) {
	lifted := contract.Decision{CPUs: contracttest.CPUs("1"), Quota: contract.QuotaNone}
	unused := contract.Decision{CPUs: contracttest.CPUs("2-3"), Quota: contract.QuotaNone}
	limit := &contract.CPULimit{Milli: 500, Open: true}
	s, err := nodestate.Compute(base, []contract.ClaimRecord{
		claim(1, contract.PodRecord{UID: uid(101), CPULimit: limit}, lifted), claim(2, contract.PodRecord{UID: uid(101)}, unused),
	})
	require.NoError(t, err)
	require.Equal(t, "150000 100000", s.Pods[uid(101)].Quota)
}

// I8: the order in which the caller has the claims does not matter.
func TestOrderOfClaims(t *testing.T) {
	first := claim(1, contract.PodRecord{UID: uid(101)}, contract.Decision{CPUs: contracttest.CPUs("1")})
	second := claim(2, contract.PodRecord{UID: uid(102)}, contract.Decision{CPUs: contracttest.CPUs("2")})
	first.Results[0].Quiet = contract.Quiet{NoInterrupts: true, Device: "eth0"}
	second.Results[0].Quiet = contract.Quiet{NoInterrupts: true, Device: "disk"}
	want, err := nodestate.Compute(base, []contract.ClaimRecord{first, second})
	require.NoError(t, err)
	got, err := nodestate.Compute(base, []contract.ClaimRecord{second, first})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, want.Machine.DeviceInterrupts, 2)
}

// The pods of claims that ask something of the machine require it; the machine's part of
// the state has it.
func TestMachine(t *testing.T) {
	b := base
	b.Online = contracttest.CPUs("0-3")
	quiet := claim(1, contract.PodRecord{UID: uid(101)}, contract.Decision{CPUs: contracttest.CPUs("2")})
	quiet.Results[0].Quiet = contract.Quiet{NoInterrupts: true, NoWorkQueues: true}
	s, err := nodestate.Compute(b, []contract.ClaimRecord{
		quiet, claim(2, contract.PodRecord{UID: uid(102)}, contract.Decision{CPUs: contracttest.CPUs("1")}),
	})
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	require.Equal(t, contract.Machine{InterruptCPUs: contracttest.CPUs("0-1,3"), WorkQueueCPUs: contracttest.CPUs("0-1,3")}, s.Machine)
	require.Equal(t, []string{contract.FeatureHousekeeping, contract.FeatureInterrupts}, s.Pods[uid(101)].Requires)
	require.Empty(t, s.Pods[uid(102)].Requires)
}
