// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
)

// bench measures on the NUMA node without CPUs: only the runs have memory there.
func (s suite) bench(t *testing.T) *pressure.Bench {
	return &pressure.Bench{Cluster: s.Cluster, Client: s.client, Node: wide, NUMA: 4, Class: "dra.cpumem-unknown", Log: t.Logf}
}

// A43: when a neighbour wants the whole NUMA node, the protected container keeps its page
// cache and, on a node with swap, its anonymous memory. A container without protection
// loses both; so does a container with protection that the cgroups above it lack.
func TestA43_ProtectedPagesStay(t *testing.T) {
	longOnly(t)
	b := theSuite.bench(t)
	disable, err := b.EnableSwap(t.Context(), 256<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disable(context.Background())) })
	r, err := b.Reclaim(t.Context(), pressure.Sizes{Claim: 112 << 20, Cache: 48 << 20, Anon: 48 << 20, Stream: 256 << 20, Room: 32 << 20})
	require.NoError(t, err)
	require.NoError(t, r.Check())
}

// A43: memory.high slows a container down instead of ending it, and memory.max ends
// only the container that goes over it.
func TestA43_LimitsHitWhoGoesOverThem(t *testing.T) {
	longOnly(t)
	l, err := theSuite.bench(t).Limits(t.Context(), 32<<20)
	require.NoError(t, err)
	require.NoError(t, l.Check())
}
