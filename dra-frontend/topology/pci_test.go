// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// T2 has the CPUs 0-1,4-5 on node 0 and 2-3,6-7 on node 1.
func TestPCIeRoots(t *testing.T) {
	for name, c := range map[string]struct {
		local    map[string]string // the file's content by bridge
		want     [][]string        // by node
		warnings []string
	}{
		"a bridge of each node": {
			map[string]string{"pci0000:00": "0-1,4-5\n", "pci0000:40": "2-3,6-7\n", "pci0000:20": "0-1,4-5\n"},
			[][]string{{"pci0000:00", "pci0000:20"}, {"pci0000:40"}}, nil,
		},
		"local to a part of a node":      {map[string]string{"pci0000:00": "2\n"}, [][]string{nil, {"pci0000:00"}}, nil},
		"local to all CPUs":              {map[string]string{"pci0000:00": "0-7\n"}, [][]string{nil, nil}, nil},
		"local to no CPU":                {map[string]string{"pci0000:00": "\n"}, [][]string{nil, nil}, nil},
		"a domain of five digits":        {map[string]string{"pci10000:e1": "2-3,6-7\n"}, [][]string{nil, {"pci10000:e1"}}, nil},
		"another directory of that kind": {map[string]string{"pci_x": "2-3\n"}, [][]string{nil, nil}, nil},
		"no list": {map[string]string{"pci0000:00": "node 1\n", "pci0000:40": "2-3\n"}, [][]string{nil, {"pci0000:40"}},
			[]string{"pci0000:00 is local to no NUMA node"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := topologytest.T2()
			sys := s.Sys()
			for bridge, list := range c.local {
				sys["devices/"+bridge+"/pci_bus/"+bridge[len("pci"):]+"/cpulistaffinity"] = text("%s", list)
			}
			m, err := topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
			require.NoError(t, err)
			require.Len(t, m.Warnings, len(c.warnings))
			for i, w := range c.warnings {
				require.Contains(t, m.Warnings[i], w)
			}
			for i, n := range m.NUMANodes {
				require.Equal(t, c.want[i], n.PCIeRoots, "node %d", n.ID)
			}
		})
	}
}

// The kernel gives a bus without a node all CPUs as local, which are those of the
// only node.
func TestPCIeRootsOfOneNode(t *testing.T) {
	s := topologytest.T1()
	sys := s.Sys()
	sys["devices/pci0000:00/pci_bus/0000:00/cpulistaffinity"] = text("%s\n", s.Machine().Online())
	m, err := topology.Discover(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize)
	require.NoError(t, err)
	require.Len(t, m.NUMANodes, 1)
	require.Equal(t, []string{"pci0000:00"}, m.NUMANodes[0].PCIeRoots)
}
