// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

// The subcommands, flags and arguments of cpumem on the pages exist.
func TestPagesOfCommands(t *testing.T) {
	all, err := pages.Read("../..")
	require.NoError(t, err)
	commands, err := pages.CommandsOf(all, "cpumem")
	require.NoError(t, err)
	for _, c := range commands {
		_, _, err := c.Parse(command())
		assert.NoError(t, err)
	}
}

// Each description of a machine on the pages and among the examples can be read.
func TestPagesOfMachines(t *testing.T) {
	all, err := pages.Read("../..")
	require.NoError(t, err)
	blocks, err := pages.YAML("../..", all)
	require.NoError(t, err)
	found := 0
	for _, b := range blocks {
		if b.Mark != pages.Machine {
			continue
		}
		found++
		machine := filepath.Join(t.TempDir(), "machine.yaml")
		require.NoError(t, os.WriteFile(machine, []byte(b.Text), 0o600))
		_, err := execute("simulate", "--machine", machine, "../../examples/latency-critical.yaml")
		assert.NoError(t, err, b.At())
	}
	require.NotZero(t, found)
}
