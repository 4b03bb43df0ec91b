// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
)

// The two halves of a zone have all of its capacities together, and none in common.
func TestHalves(t *testing.T) {
	whole, err := spec{zone, 1, 2, 0}.devices()
	require.NoError(t, err)
	halves, err := spec{twoDevices, 1, 2, 0}.devices()
	require.NoError(t, err)
	require.Len(t, halves, 2)
	for i, d := range whole["dra.cpumem"] {
		joined := map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
		for _, of := range halves {
			require.Equal(t, d.Attributes, of[i].Attributes)
			for name, c := range of[i].Capacity {
				require.NotContains(t, joined, name)
				joined[name] = c
			}
		}
		require.Equal(t, d.Capacity, joined)
	}
}

// Claims that are allocated before go over all nodes, then over all zones.
func TestAllocation(t *testing.T) {
	s := spec{kind: zone, nodes: 2, zones: 2}
	var got []string
	shares := map[string]bool{}
	for i := range 5 {
		r := s.allocation(i).Devices.Results[0]
		got = append(got, r.Pool+" "+r.Device)
		shares[string(*r.ShareID)] = true
	}
	require.Equal(t, []string{"hollow-0 numa-0", "hollow-1 numa-0", "hollow-0 numa-1", "hollow-1 numa-1", "hollow-0 numa-0"}, got)
	require.Len(t, shares, 5)
}

func TestTable(t *testing.T) {
	require.Equal(t, "| a pod asks for | nodes | zones of a node | claims before | slices of a node | pods each second | "+
		"scheduler's CPU for a pod |\n|---|--:|--:|--:|--:|--:|--:|\n| one zone | 500 | 2 | 200 | 1.5 KiB | 12.5 | 80.0 ms |\n",
		table([]result{{spec: spec{zone, 500, 2, 200}, pods: 25, took: 2 * time.Second, cpu: 2 * time.Second, slices: 1536}}))
}
