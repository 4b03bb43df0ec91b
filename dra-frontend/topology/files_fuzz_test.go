// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"maps"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// FuzzDiscover: one file of a machine has any content. The machine is refused, or each
// CPU is on the node that lists it, and no amount is negative.
func FuzzDiscover(f *testing.F) {
	type file struct {
		machine int
		name    string
	}
	numbers, kinds := regexp.MustCompile("[0-9]+"), make(map[string]bool)
	var files []file
	var machines []topologytest.Spec
	var sys, proc []fstest.MapFS
	for _, c := range topologytest.All() {
		if s := c.Spec; len(s.CPUs) <= 24 {
			machines, sys, proc = append(machines, s), append(sys, s.Sys()), append(proc, s.Proc())
			for _, name := range slices.Concat(slices.Sorted(maps.Keys(s.Sys())), slices.Sorted(maps.Keys(s.Proc()))) {
				// One CPU, one node and one cache stand for all.
				if kind := numbers.ReplaceAllString(name, "N"); !kinds[kind] {
					kinds[kind] = true
					files = append(files, file{len(machines) - 1, name})
				}
			}
		}
	}
	for n := range files {
		f.Add(uint(n), []byte("0-3\n"))
	}
	for _, content := range []string{"", "-1", "ff,00000000", "Node 0 MemTotal: -5 kB", "0x00000000410fd0c0", "18446744073709551616"} {
		f.Add(uint(0), []byte(content))
	}
	f.Fuzz(func(t *testing.T, n uint, content []byte) {
		changed := files[n%uint(len(files))]
		roots := topology.Roots{Sys: maps.Clone(sys[changed.machine]), Proc: maps.Clone(proc[changed.machine])}
		for _, tree := range []fstest.MapFS{roots.Sys.(fstest.MapFS), roots.Proc.(fstest.MapFS)} {
			if tree[changed.name] != nil {
				tree[changed.name] = &fstest.MapFile{Data: content}
			}
		}
		m, err := topology.Discover(roots, machines[changed.machine].PageSize)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.NotEmpty(t, m.CPUs)
		for _, c := range m.CPUs {
			node, found := m.Node(c.Node)
			require.True(t, found)
			require.True(t, node.CPUs.Contains(c.ID))
		}
		for _, node := range m.NUMANodes {
			require.GreaterOrEqual(t, node.MemTotal, int64(0))
			require.Len(t, node.Distances, len(m.NUMANodes))
			for size, pages := range node.Hugepages {
				require.Positive(t, size)
				require.GreaterOrEqual(t, pages, int64(0))
			}
		}
		require.True(t, m.Isolated.IsSubsetOf(m.Online()))
		require.False(t, m.Offline.Overlaps(m.Online()))
	})
}
