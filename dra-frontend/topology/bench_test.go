// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// BenchmarkMachine measures the first reading of a machine of 512 CPUs, and a later one. The machine is a copy in plain files.
func BenchmarkMachine(b *testing.B) {
	spec, dir := topologytest.T4(), b.TempDir()
	require.NoError(b, os.CopyFS(filepath.Join(dir, "sys"), spec.Sys()))
	require.NoError(b, os.CopyFS(filepath.Join(dir, "proc"), spec.Proc()))
	roots := topology.At(filepath.Join(dir, "sys"), filepath.Join(dir, "proc"))
	before, err := topology.Discover(roots, spec.PageSize)
	require.NoError(b, err)
	require.Len(b, before.CPUs, 512)
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := topology.Discover(roots, spec.PageSize)
			require.NoError(b, err)
		}
	})
	b.Run("later", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := before.Reread(roots)
			require.NoError(b, err)
		}
	})
}
