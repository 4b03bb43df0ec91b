// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestDecisionValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*contract.Decision)
		err  string
	}{
		"says nothing":         {edit: func(*contract.Decision) {}},
		"everything":           {edit: func(d *contract.Decision) { *d = goldenDecisions()["decision-full"] }},
		"no version":           {edit: func(d *contract.Decision) { d.V = "" }, err: "version"},
		"other version":        {edit: func(d *contract.Decision) { d.V = "v2" }, err: `version "v2"`},
		"negative memory":      {edit: func(d *contract.Decision) { d.Memory = &contract.Memory{Min: -4096} }, err: "memory.min"},
		"memory between pages": {edit: func(d *contract.Decision) { d.Memory = &contract.Memory{Low: 4097} }, err: "memory.low"},
		"high between pages":   {edit: func(d *contract.Decision) { d.Memory = &contract.Memory{High: 1} }, err: "memory.high"},
		"max between pages":    {edit: func(d *contract.Decision) { d.Memory = &contract.Memory{Max: 1} }, err: "memory.max"},
		"memory all max": {edit: func(d *contract.Decision) {
			d.Memory = &contract.Memory{contract.Max, contract.Max, contract.Max, contract.Max}
		}},
		"unknown page size": {
			edit: func(d *contract.Decision) { d.Hugepages = map[string]contract.Limit{"2MB": 0} },
			err:  "page size",
		},
		"hugepages in between": {
			edit: func(d *contract.Decision) { d.Hugepages = map[string]contract.Limit{"2Mi": 4096} },
			err:  "multiple",
		},
		"negative hugepages": {
			edit: func(d *contract.Decision) { d.Hugepages = map[string]contract.Limit{"2Mi": -2 << 20} },
			err:  "multiple",
		},
		"hugepages max":         {edit: func(d *contract.Decision) { d.Hugepages = map[string]contract.Limit{"2Mi": contract.Max} }},
		"empty feature":         {edit: func(d *contract.Decision) { d.Requires = []string{"a", ""} }, err: "requires"},
		"a feature, whatever":   {edit: func(d *contract.Decision) { d.Requires = []string{"a"} }},
		"hugepages zero is all": {edit: func(d *contract.Decision) { d.Hugepages = map[string]contract.Limit{"1Gi": 0} }},
		"policy":                {edit: func(d *contract.Decision) { *d = policyDecision("0-1", contract.ModeBind, "1") }},
		"policy over all mems":  {edit: func(d *contract.Decision) { *d = policyDecision("0,2", contract.ModeInterleave, "0,2") }},
		"policy of other mode": {
			edit: func(d *contract.Decision) { *d = policyDecision("0", "strict", "0") },
			err:  `mode "strict" is none of bind, preferred, weightedInterleave, interleave`,
		},
		"policy without nodes": {
			edit: func(d *contract.Decision) { *d = policyDecision("0", contract.ModeBind, "") },
			err:  "memoryPolicy: mode bind without nodes",
		},
		"policy beyond mems": {
			edit: func(d *contract.Decision) { *d = policyDecision("0", contract.ModeBind, "0-1") },
			err:  `nodes 0-1 are not all among mems "0"`,
		},
		"policy without mems": {
			edit: func(d *contract.Decision) { *d = policyDecision("", contract.ModeBind, "0") },
			err:  `not all among mems ""`,
		},
		"policy that nothing needs": {
			edit: func(d *contract.Decision) { *d = policyDecision("0", contract.ModeBind, "0"); d.Requires = nil },
			err:  `needs feature "memoryPolicy"`,
		},
		"weights that nothing needs": {
			edit: func(d *contract.Decision) {
				*d = policyDecision("0", contract.ModeWeightedInterleave, "0")
				d.Requires = []string{contract.FeatureMemoryPolicy}
			},
			err: `needs feature "weightedInterleave"`,
		},
		"feature without policy": {edit: func(d *contract.Decision) { d.Requires = features() }},
		"no quota":               {edit: func(d *contract.Decision) { *d = quotaDecision() }},
		"another quota": {
			edit: func(d *contract.Decision) { *d = quotaDecision(); d.Quota = "50000" },
			err:  `quota: "50000" is not "none"`,
		},
		"no quota on the shared pool": {
			edit: func(d *contract.Decision) { *d = quotaDecision(); d.CPUs = contract.CPUSet{} },
			err:  "quota: none without cpus",
		},
		"no quota that nothing needs": {
			edit: func(d *contract.Decision) { *d = quotaDecision(); d.Requires = nil },
			err:  `quota: none needs feature "quota" in requires`,
		},
		"partition":          {edit: func(d *contract.Decision) { *d = partitionDecision("4-7", contract.PartitionRoot) }},
		"isolated partition": {edit: func(d *contract.Decision) { *d = partitionDecision("4-7", contract.PartitionIsolated) }},
		"partition that is none": {
			edit: func(d *contract.Decision) { *d = partitionDecision("4-7", "member") },
			err:  `partition: "member" is none of root, isolated`,
		},
		"partition of nothing": {
			edit: func(d *contract.Decision) { *d = partitionDecision("", contract.PartitionRoot) },
			err:  "partition: root without cpus",
		},
		"partition that nothing needs": {
			edit: func(d *contract.Decision) {
				*d = partitionDecision("4", contract.PartitionRoot)
				d.Requires = nil
			},
			err: `needs feature "partition"`,
		},
		"lowest OOM score":  {edit: func(d *contract.Decision) { *d = oomDecision(-1000) }},
		"highest OOM score": {edit: func(d *contract.Decision) { *d = oomDecision(1000) }},
		"OOM score too low": {
			edit: func(d *contract.Decision) { *d = oomDecision(-1001) },
			err:  "oomScoreAdj: -1001 is not between -1000 and 1000",
		},
		"OOM score too high": {edit: func(d *contract.Decision) { *d = oomDecision(1001) }, err: "oomScoreAdj: 1001 is not between"},
		"OOM score not needed": {
			edit: func(d *contract.Decision) { *d = oomDecision(0); d.Requires = nil },
			err:  `oomScoreAdj: 0 needs feature "oomScoreAdj"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := decision(tc.edit)
			_, envErr := d.Env(contract.Key{ClaimUID: claimUID})
			if tc.err == "" {
				require.NoError(t, d.Validate())
				require.NoError(t, envErr)
				return
			}
			require.ErrorContains(t, d.Validate(), tc.err)
			require.ErrorContains(t, envErr, tc.err, "what is invalid is not written")
		})
	}
}

func TestMemoryFiles(t *testing.T) {
	require.Equal(t,
		map[string]string{"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192"},
		contract.Memory{Min: 4096, High: contract.Max, Max: 8192}.Files())
	require.NotContains(t, contract.Memory{Max: contract.Max}.Files(), "memory.max",
		"max leaves memory.max as the container's own spec has it")
}

func TestPartitionFiles(t *testing.T) {
	require.Equal(t, map[string]string{"cpuset.cpus.exclusive": "2,6", "cpuset.cpus.partition": "isolated"},
		partitionDecision("2,6", contract.PartitionIsolated).Files())
	require.Empty(t, cpuDecision("2,6").Files())
}

// A container with several claims is one partition with the CPUs of all claims.
func TestCombinedPartitions(t *testing.T) {
	root, isolated := partitionDecision("2", contract.PartitionRoot), partitionDecision("4", contract.PartitionIsolated)
	require.Equal(t, partitionDecision("2,4", contract.PartitionIsolated), contract.Combine(root, isolated))
	require.Equal(t, partitionDecision("2,7", contract.PartitionRoot), contract.Combine(cpuDecision("7"), root))
	require.Empty(t, contract.Combine(cpuDecision("7"), cpuDecision("8")).Partition)
}

// The container gets the lower value: the decision's or its own.
func TestLowersOOMScore(t *testing.T) {
	d := oomDecision(-997)
	for name, tc := range map[string]struct {
		own  *int
		want bool
	}{
		"none":        {nil, true},
		"best effort": {new(1000), true},
		"one above":   {new(-996), true},
		"the same":    {new(-997), false},
		"lower":       {new(-1000), false},
	} {
		require.Equal(t, tc.want, d.LowersOOMScore(tc.own), name)
		require.False(t, decision(nil).LowersOOMScore(tc.own), name)
	}
	require.True(t, oomDecision(0).LowersOOMScore(new(1)), "zero is a value")
}

func TestWithShared(t *testing.T) {
	shared := contract.Shared{CPUs: contracttest.CPUs("0-3"), Mems: contracttest.NUMANodes("0")}
	pooled, claimed := decision(nil), cpuDecision("7")
	pooled.CPUs, pooled.Mems = shared.CPUs, shared.Mems
	require.Equal(t, pooled, decision(nil).WithShared(shared))
	claimed.Mems = shared.Mems
	require.Equal(t, claimed, cpuDecision("7").WithShared(shared))
}

func TestDecodeDecision(t *testing.T) {
	known := []string{"a", "b"}
	for name, tc := range map[string]struct {
		value string
		want  func(*contract.Decision)
		err   string
	}{
		"minimal": {value: `{"v":"v1"}`, want: func(d *contract.Decision) { d.Requires = nil }},
		"cpus": {value: `{"v":"v1","cpus":"4-7","requires":[]}`,
			want: func(d *contract.Decision) { d.CPUs = contracttest.CPUs("4-7") }},
		"white space":    {value: " {\"v\" : \"v1\", \"requires\":[ ] }\n"},
		"unknown member": {value: `{"v":"v1","later":{"cpus":"1","x":[1,{"cpus":2}]},"requires":[]}`},
		"unknown member of part": {
			value: `{"v":"v1","memory":{"min":0,"low":0,"high":0,"max":0,"swap":1},"requires":[]}`,
			want:  func(d *contract.Decision) { d.Memory = &contract.Memory{} },
		},
		"known features": {
			value: `{"v":"v1","requires":["b","a"]}`,
			want:  func(d *contract.Decision) { d.Requires = []string{"b", "a"} },
		},
		"unknown feature":    {value: `{"v":"v1","requires":["a","c"]}`, err: `requires feature "c"`},
		"unknown version":    {value: `{"v":"v2","requires":[]}`, err: `contract version "v2"`},
		"other types in v2":  {value: `{"v":"v2","cpus":[1,2]}`, err: `contract version "v2"`},
		"no version":         {value: `{"cpus":"1"}`, err: `"v" is missing`},
		"cpus not a list":    {value: `{"v":"v1","cpus":"x"}`, err: `cpus: list "x"`},
		"cpus empty":         {value: `{"v":"v1","cpus":""}`, err: "cpus: empty list"},
		"cpus not in order":  {value: `{"v":"v1","cpus":"1,0"}`, err: `cpus: list "1,0" is not normalised, want "0-1"`},
		"cpus padded":        {value: `{"v":"v1","cpus":"01"}`, err: `want "1"`},
		"mems not in order":  {value: `{"v":"v1","mems":"0,1"}`, err: `mems: list "0,1"`},
		"nodes not in order": {value: `{"v":"v1","memoryPolicy":{"mode":"bind","nodes":"0,1"}}`, err: `memoryPolicy: nodes: list "0,1"`},
		"duplicate":          {value: `{"v":"v1","cpus":"1","cpus":"2"}`, err: "twice"},
		"duplicate, escaped": {value: `{"v":"v1","cpus":"1","cp\u0075s":"2"}`, err: "twice"},
		"duplicate unknown":  {value: `{"v":"v1","x":1,"x":1}`, err: "twice"},
		"miscased":           {value: `{"v":"v1","CPUs":"1"}`, err: `spelt "cpus"`},
		"miscased version":   {value: `{"V":"v1"}`, err: `spelt "v"`},
		"folds to a member":  {value: `{"v":"v1","memſ":"1"}`, err: `spelt "mems"`},
		"null member":        {value: `{"v":"v1","cpus":null}`, err: "null"},
		"null in a list":     {value: `{"v":"v1","requires":[null]}`, err: "null"},
		"null in unknown":    {value: `{"v":"v1","x":null}`, err: "null"},
		"null":               {value: `null`, err: "null"},
		"trailing text":      {value: `{"v":"v1"}x`, err: "trailing"},
		"trailing value":     {value: `{"v":"v1"}{"v":"v1"}`, err: "trailing"},
		"nothing":            {value: ``, err: "EOF"},
		"cut off":            {value: `{"v":"v1"`, err: "EOF"},
		"not an object":      {value: `["v1"]`, err: "decision"},
		"not UTF-8":          {value: "{\"v\":\"v1\",\"x\":\"\xff\"}", err: "UTF-8"},
		"too deep": {
			value: `{"v":"v1","x":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}`,
			err:   "nested",
		},
		"empty hugepages":     {value: `{"v":"v1","hugepages":{}}`, err: `"hugepages" is empty`},
		"memory without max":  {value: `{"v":"v1","memory":{"min":0,"low":0,"high":"max"}}`, err: `"max" is missing`},
		"memory empty":        {value: `{"v":"v1","memory":{}}`, err: `memory: member "min" is missing`},
		"cpus not normalised": {value: `{"v":"v1","cpus":"7,4-6"}`, err: "normalised"},
		"cpus a number":       {value: `{"v":"v1","cpus":4}`, err: "cpus"},
		"policy without mode": {
			value: `{"v":"v1","mems":"0","memoryPolicy":{"nodes":"0"},"requires":["a"]}`,
			err:   `memoryPolicy: member "mode" is missing`,
		},
		"policy unannounced": {
			value: `{"v":"v1","mems":"0","memoryPolicy":{"mode":"bind","nodes":"0"},"requires":["memoryPolicy"]}`,
			err:   `requires feature "memoryPolicy"`,
		},
		"amount a string": {value: `{"v":"v1","hugepages":{"2Mi":"0"}}`, err: "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := contract.DecodeDecision(tc.value, known)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, decision(tc.want), got)
		})
	}
}

func TestParseEnv(t *testing.T) {
	for name, tc := range map[string]struct {
		entry string
		ours  bool
		err   string
	}{
		"of others":             {entry: "PATH=/bin"},
		"cpuset is not read":    {entry: "DRA_CPUSET_" + claimUID + "=0"},
		"other case":            {entry: "dra_cpumem_" + hexUID + `_0={"v":"v1"}`},
		"ours":                  {entry: "DRA_CPUMEM_" + hexUID + `_0={"v":"v1"}`, ours: true},
		"prefix alone":          {entry: "DRA_CPUMEM_", ours: true, err: "DRA_CPUMEM_"},
		"invented":              {entry: "DRA_CPUMEM_MODE=fast", ours: true, err: "DRA_CPUMEM_MODE"},
		"no value":              {entry: "DRA_CPUMEM_" + hexUID + "_0", ours: true, err: "DRA_CPUMEM_" + hexUID + "_0"},
		"broken value":          {entry: "DRA_CPUMEM_" + hexUID + "_0={", ours: true, err: "DRA_CPUMEM_" + hexUID + "_0"},
		"equals sign in a name": {entry: "DRA_CPUMEM_=" + hexUID + `_0={"v":"v1"}`, ours: true, err: "DRA_CPUMEM_"},
	} {
		t.Run(name, func(t *testing.T) {
			k, _, ours, err := contract.ParseEnv(tc.entry, nil)
			require.Equal(t, tc.ours, ours)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, "the error names the variable")
				return
			}
			require.NoError(t, err)
			if ours {
				require.Equal(t, contract.Key{ClaimUID: claimUID}, k)
			}
		})
	}
}
