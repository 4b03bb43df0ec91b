// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseGates(t *testing.T) {
	gates, err := parseGates("A=true,B=false,")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"A": true, "B": false}, gates)
	gates, err = parseGates("")
	require.NoError(t, err)
	require.Empty(t, gates)
	_, err = parseGates("A")
	require.ErrorContains(t, err, `feature gate "A": want Name=true or Name=false`)
}

func TestEnvironmentGivesDefaults(t *testing.T) {
	t.Setenv("CPUMEM_CLUSTER_NODES", "3")
	t.Setenv("CPUMEM_CLUSTER_NUMA_PER_SOCKET", "2")
	cmd := newUp(nil)
	require.NoError(t, cmd.ParseFlags([]string{"--nodes", "2"}))
	require.NoError(t, fromEnvironment(cmd))
	nodes, err := cmd.Flags().GetInt("nodes")
	require.NoError(t, err)
	require.Equal(t, 2, nodes, "a flag wins")
	numa, err := cmd.Flags().GetInt("numa-per-socket")
	require.NoError(t, err)
	require.Equal(t, 2, numa)

	t.Setenv("CPUMEM_CLUSTER_SOCKETS", "two")
	require.ErrorContains(t, fromEnvironment(newUp(nil)), "CPUMEM_CLUSTER_SOCKETS")
}
