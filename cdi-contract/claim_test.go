// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestEncodeClaimRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*contract.ClaimRecord)
		err  string
	}{
		"version":           {func(r *contract.ClaimRecord) { r.V = "v0" }, "version"},
		"uid":               {func(r *contract.ClaimRecord) { r.UID = "../x" }, "object UID"},
		"name":              {func(r *contract.ClaimRecord) { r.Name = "" }, "name and namespace"},
		"namespace":         {func(r *contract.ClaimRecord) { r.Namespace = "" }, "name and namespace"},
		"boot id":           {func(r *contract.ClaimRecord) { r.BootID = "" }, "bootID"},
		"no results":        {func(r *contract.ClaimRecord) { r.Results = nil }, "0 results"},
		"too many results":  {func(r *contract.ClaimRecord) { r.Results = make([]contract.ResultRecord, 1024) }, "1024 results"},
		"relative guard":    {func(r *contract.ClaimRecord) { r.Guard = "guard" }, "guard path"},
		"unclean guard":     {func(r *contract.ClaimRecord) { r.Guard = "/opt/../guard" }, "guard path"},
		"guard's timeout":   {func(r *contract.ClaimRecord) { r.GuardTimeout = -1 }, "guard timeout -1 s"},
		"pod UID":           {func(r *contract.ClaimRecord) { r.Pods[0].UID = "pod" }, "pod UID"},
		"pod level":         {func(r *contract.ClaimRecord) { r.Pods[0].QOS = "guaranteed" }, "QoS level"},
		"pod hugepages":     {func(r *contract.ClaimRecord) { r.Pods[0].Hugepages = map[string]contract.Limit{"2M": 0} }, "page size"},
		"no request":        {func(r *contract.ClaimRecord) { r.Results[0].Request = "" }, "lacks"},
		"no pool":           {func(r *contract.ClaimRecord) { r.Results[0].Pool = "" }, "lacks"},
		"no device":         {func(r *contract.ClaimRecord) { r.Results[0].Device = "" }, "lacks"},
		"invalid decision":  {func(r *contract.ClaimRecord) { r.Results[0].Decision.OOMScoreAdj = new(2000) }, "oomScoreAdj"},
		"mount of no size":  {func(r *contract.ClaimRecord) { r.Results[0].Hugetlbfs = []string{"../2Mi"} }, "hugetlbfs: page size"},
		"mounted twice":     {func(r *contract.ClaimRecord) { r.Results[0].Hugetlbfs = []string{"2Mi", "2Mi"} }, "not sorted and distinct"},
		"mounts not sorted": {func(r *contract.ClaimRecord) { r.Results[0].Hugetlbfs = []string{"2Mi", "1Gi"} }, "not sorted and distinct"},
		"record over limit": {func(r *contract.ClaimRecord) { r.Name = strings.Repeat("x", 256<<10) }, "CDI allows 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			r := claim(result("cpus", cpuDecision("1-2")))
			tc.edit(&r)
			_, err := contract.EncodeClaim(r)
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestEncodeClaimLeavesTheRecordAlone(t *testing.T) {
	r := claim(result("cpus", contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("1")}))
	data, err := contract.EncodeClaim(r)
	require.NoError(t, err)
	require.Nil(t, r.Results[0].Decision.Requires)
	require.Contains(t, string(data), `\"requires\":[]`, "a written decision always says what it requires")
}

// A80: the guard's hook has the timeout of the record, and decoding gives the
// timeout back. Older frontends write no timeout: the hook then has 30 s.
func TestGuardTimeout(t *testing.T) {
	for seconds, want := range map[int]int{0: 30, 10: 10, 30: 30, 75: 75} {
		r := goldenClaims()["claim-guard"]
		r.GuardTimeout = seconds
		data, err := contract.EncodeClaim(r)
		require.NoError(t, err)
		var spec struct {
			Devices []struct {
				ContainerEdits struct{ Hooks []struct{ Timeout int } }
			}
		}
		require.NoError(t, json.Unmarshal(data, &spec))
		require.Equal(t, want, spec.Devices[0].ContainerEdits.Hooks[0].Timeout)
		got, err := contract.DecodeClaim(contract.ClaimFile(claimUID), data)
		require.NoError(t, err)
		require.Equal(t, seconds, got.GuardTimeout)
	}
}

func TestDecodeClaimRefuses(t *testing.T) {
	several, err := contract.EncodeClaim(claim(result("a", cpuDecision("4-7")), result("b", cpuDecision("9"))))
	require.NoError(t, err)
	envOf := func(uid string, index int, cpus string) string {
		return fmt.Sprintf(`"DRA_CPUMEM_%s_%d={\"v\":\"v1\",\"cpus\":\"%s\",\"requires\":[]}"`,
			strings.ReplaceAll(uid, "-", ""), index, cpus)
	}
	device := func(name, env string) string {
		return fmt.Sprintf(`{"name":%q,"containerEdits":{"env":[%s]}},`, name, env)
	}
	first := envOf(claimUID, 0, "4-7")
	for name, tc := range map[string]struct {
		file     string
		old, new string
		err      string
	}{
		"record of another claim": {file: contract.ClaimFile(otherUID), err: "the file is named"},
		"another file name":       {file: "claim.json", err: "the file is named"},
		"kind of another record":  {old: `"dra.cpumem/claim"`, new: `"dra.cpumem/node"`, err: `want "dra.cpumem/claim"`},
		"no record":               {old: "dra.cpumem/record", new: "dra.cpumem/other", err: `annotation "dra.cpumem/record" is missing`},
		"no version":              {old: "dra.cpumem/contract", new: "dra.cpumem/other", err: "version"},
		"file of another version": {old: `"dra.cpumem/contract": "v1"`, new: `"dra.cpumem/contract": "v2"`, err: `version "v2"`},
		"broken record":           {old: `"{\"v\":\"v1\",\"namespace\"`, new: `"\"v\":\"v1\",\"namespace\"`, err: "annotation"},
		"miscased spec":           {old: `"kind"`, new: `"Kind"`, err: `spelt "kind"`},
		"env differs from record": {old: first, new: envOf(claimUID, 0, "4-6"), err: "differs from the record"},
		"env is no decision":      {old: first, new: `"DRA_CPUMEM_` + hexUID + `_0=4-7"`, err: "decision"},
		"env of another index":    {old: first, new: envOf(claimUID, 1, "4-7"), err: "carries the decision of"},
		"env of another claim":    {old: first, new: envOf(otherUID, 0, "4-7"), err: "carries the decision of"},
		"env of no claim":         {old: first, new: `"DRA_CPUMEM_X=1"`, err: "DRA_CPUMEM_X"},
		"env is missing":          {old: first, new: `"A=1"`, err: "inject 1 decisions, the record has 2"},
		"env twice":               {old: first, new: first + "," + first, err: "two decisions"},
		"device renamed":          {old: `"` + claimUID + `-0"`, new: `"` + claimUID + `-7"`, err: "carries the decision of"},
		"device not in the record": {
			old: `"devices": [`,
			new: `"devices": [` + device(claimUID+"-2", envOf(claimUID, 2, "0")),
			err: "inject 3 decisions, the record has 2",
		},
		"device twice":    {old: `"devices": [`, new: `"devices": [` + device(claimUID+"-0", first), err: "two decisions"},
		"devices missing": {old: `"devices"`, new: `"gadgets"`, err: `"devices" is missing`},
		"record differs from env": {
			old: `\"device\":\"a\",\"decision\":{\"v\":\"v1\",\"cpus\":\"4-7\"`,
			new: `\"device\":\"a\",\"decision\":{\"v\":\"v1\",\"cpus\":\"4-5\"`,
			err: "differs from the record",
		},
		"member of record missing":  {old: `\"bootID\"`, new: `\"boot\"`, err: `"bootID" is missing`},
		"member of record miscased": {old: `\"bootID\"`, new: `\"bootId\"`, err: `spelt "bootID"`},
	} {
		t.Run(name, func(t *testing.T) {
			data, file := several, contract.ClaimFile(claimUID)
			if tc.old != "" {
				data = swap(several, tc.old, tc.new)
			}
			if tc.file != "" {
				file = tc.file
			}
			_, err := contract.DecodeClaim(file, data)
			require.ErrorContains(t, err, tc.err)
		})
	}
	t.Run("empty file", func(t *testing.T) {
		_, err := contract.DecodeClaim(contract.ClaimFile(claimUID), nil)
		require.ErrorContains(t, err, "not a CDI spec")
	})
}

func TestDecodeClaimEntries(t *testing.T) {
	data, err := contract.EncodeClaim(goldenClaims()["claim-guard"])
	require.NoError(t, err)
	key := contract.Key{ClaimUID: claimUID}
	want := map[contract.Key]string{key: "DRA_CPUMEM_" + hexUID + `_0={"v":"v1","cpus":"4-7","requires":[]}`}

	got, err := contract.DecodeClaimEntries(claimUID, data)
	require.NoError(t, err)
	require.Equal(t, want, got)

	got, err = contract.DecodeClaimEntries(claimUID, swap(data, "dra.cpumem/record", "dra.cpumem/other"))
	require.NoError(t, err, "the actuator reads nothing else of the file")
	require.Equal(t, want, got)

	_, err = contract.DecodeClaimEntries(otherUID, data)
	require.ErrorContains(t, err, "carries the decision of")
	_, err = contract.DecodeClaimEntries(claimUID, swap(data, `"dra.cpumem/claim"`, `"dra.cpumem/node"`))
	require.ErrorContains(t, err, "kind")
}

func TestIsGuard(t *testing.T) {
	const path = "/var/lib/dra-cpumem/bin/nri-actuator-0123"
	for name, c := range map[string]struct {
		path string
		args []string
		want bool
	}{
		"as injected":              {path, []string{"nri-actuator-0123", "guard"}, true},
		"of an unversioned name":   {"/opt/nri-actuator", []string{"nri-actuator", "guard"}, true},
		"another vendor's program": {"/opt/other", []string{"other", "guard"}, false},
		"another path":             {"/opt/other", []string{"nri-actuator-0123", "guard"}, false},
		"another command":          {path, []string{"nri-actuator-0123", "check"}, false},
		"more arguments":           {path, []string{"nri-actuator-0123", "guard", "dog"}, false},
		"no arguments":             {path, nil, false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, contract.IsGuard(c.path, c.args)) })
	}
}
