// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
)

func TestTable(t *testing.T) {
	require.Contains(t, table([]row{{level: level{500, 100}, rest: time.Minute, of: map[string]usage{
		frontend: {resident: 40, own: 20, cpu: 600 * time.Millisecond, wakes: 420}, actuator: {resident: 22, own: 11},
	}}}), "| 500 | 100 | 40 MiB | 20 MiB | 1.0 % | 7 | 22 MiB | 11 MiB | 0.0 % | 0 |\n")
}

func TestUsageOf(t *testing.T) {
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, u.own)
	require.GreaterOrEqual(t, u.resident, u.own)
	require.Positive(t, u.wakes)
	_, err = usageOf(1 << 30)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The node's machine has a CPU for each claim, beside those that no claim gets.
func TestMachine(t *testing.T) {
	n := &node{dir: t.TempDir(), config: config.Default()}
	require.NoError(t, n.write())
	m, err := topology.Discover(topology.Roots{Sys: os.DirFS(n.path("sys")), Proc: os.DirFS(n.path("proc"))}, 4<<10)
	require.NoError(t, err)
	require.Len(t, m.CPUs, 640, "the page has the number")
	read, err := config.Read(n.path("config.yaml"))
	require.NoError(t, err)
	require.Equal(t, n.config, read)
	for _, l := range levels() {
		require.Less(t, l.claims(), len(m.CPUs))
		require.Zero(t, l.ofTemplates%perPod+l.named%perPod, "each pod has %d claims", perPod)
	}
}

// The page has the marks between which the command writes.
func TestPageHasMarks(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/explanation/performance.md")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	require.NoError(t, document.Insert(file, author, "new\n"))
}
