// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"encoding/json"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
)

// TestMemoryPolicyThroughTheRuntime: the policy is in the configuration that the
// runtime writes, and the guard demands it (I5).
func TestMemoryPolicyThroughTheRuntime(t *testing.T) {
	h := newHost(t)
	h.runtime, h.version = "cri-o", "1.37.0"
	h.startRuntime()
	defer h.stopRuntime()
	h.startActuator()
	h.plugged()
	require.Contains(t, h.connected(true).Features, contract.FeatureMemoryPolicy)

	d := contract.Decision{CPUs: contracttest.CPUs("4-7"), Mems: contracttest.NUMANodes("0-1"),
		MemoryPolicy: &contract.MemoryPolicy{Mode: contract.ModeInterleave, Nodes: contracttest.NUMANodes("0-1")}}
	d.Requires = d.MemoryPolicy.Features()
	spec, err := h.create("c", podA, h.node.Prepare(podA, claimA, d)...)
	require.NoError(t, err)
	want := &specs.LinuxMemoryPolicy{Mode: specs.MpolInterleave, Nodes: "0-1", Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}}
	require.Equal(t, want, spec.Linux.MemoryPolicy)
	check := func() error {
		h := guard.Hook{
			Config:      func(string) ([]byte, error) { return json.Marshal(spec) },
			PolicyModes: func() ([]string, error) { return []string{"MPOL_INTERLEAVE"}, nil },
			OpenMount:   h.node.OpenMount, Features: contract.Features(),
		}
		return h.Check(t.Context(), strings.NewReader(`{"id":"c","bundle":"/b"}`))
	}
	require.NoError(t, check())
	require.NoError(t, h.start("c", spec))
	spec.Linux.MemoryPolicy = nil // as a runtime without memory policies does
	require.ErrorContains(t, check(), "memory policy is unset")

	pool, err := h.create("pool", podB)
	require.NoError(t, err)
	require.Nil(t, pool.Linux.MemoryPolicy)
}

// TestOldRuntimeAnnouncesNoPolicy: the frontend must know before it prepares a
// claim.
func TestOldRuntimeAnnouncesNoPolicy(t *testing.T) {
	h := newHost(t)
	h.startRuntime()
	defer h.stopRuntime()
	h.startActuator()
	h.plugged()
	require.NotContains(t, h.connected(true).Features, contract.FeatureMemoryPolicy)
}
