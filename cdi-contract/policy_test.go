// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestOCIMode(t *testing.T) {
	for name, tc := range map[string]struct{ mode, nodes, want string }{
		"bind":                  {contract.ModeBind, "0-1", "MPOL_BIND"},
		"one preferred node":    {contract.ModePreferred, "12", "MPOL_PREFERRED"},
		"preferred range":       {contract.ModePreferred, "0-1", "MPOL_PREFERRED_MANY"},
		"preferred single ones": {contract.ModePreferred, "0,2", "MPOL_PREFERRED_MANY"},
		"interleave":            {contract.ModeInterleave, "0", "MPOL_INTERLEAVE"},
		"weighted interleave":   {contract.ModeWeightedInterleave, "0-3", "MPOL_WEIGHTED_INTERLEAVE"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, contract.MemoryPolicy{Mode: tc.mode, Nodes: contracttest.NUMANodes(tc.nodes)}.OCIMode())
		})
	}
}

func TestCombinePolicies(t *testing.T) {
	bind, weighted := policyDecision("0-1", contract.ModeBind, "1"), policyDecision("2", contract.ModeWeightedInterleave, "2")
	both := contract.Combine(weighted, bind)
	require.Equal(t, "0-2", both.Mems.String())
	require.Equal(t, &contract.MemoryPolicy{Mode: contract.ModeBind, Nodes: contracttest.NUMANodes("1-2")}, both.MemoryPolicy,
		"the stricter mode, the nodes of both")
	require.Equal(t, policies(), both.Requires, "who lacks what one of them requires must not apply the two")

	alone := contract.Combine(bind, decision(func(d *contract.Decision) { d.Mems = contracttest.NUMANodes("3") }))
	require.Equal(t, bind.MemoryPolicy, alone.MemoryPolicy, "a decision without a policy says nothing about it")
	require.Equal(t, "0-1,3", alone.Mems.String())
	for i, mode := range contract.MemoryPolicyModes() {
		for _, looser := range contract.MemoryPolicyModes()[i:] {
			got := contract.Combine(policyDecision("0", looser, "0"), policyDecision("0", mode, "0"))
			require.Equal(t, mode, got.MemoryPolicy.Mode, looser)
		}
	}
}
