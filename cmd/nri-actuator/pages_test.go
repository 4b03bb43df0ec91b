// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/pages"
)

// The subcommands and flags of nri-actuator on the pages exist.
func TestPagesOfCommands(t *testing.T) {
	all, err := pages.Read("../..")
	require.NoError(t, err)
	commands, err := pages.CommandsOf(all, "nri-actuator")
	require.NoError(t, err)
	for _, c := range commands {
		_, _, err := c.Parse(command())
		assert.NoError(t, err)
	}
}
