// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// The page about the tool has each command in the section that is the command's group in the help text. doctor has
// commands about both.
func TestPageOfTheTool(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/tool.md")
	require.NoError(t, err)
	groups := make(map[string]string)
	for _, c := range command().Commands() {
		groups[c.Name()] = c.GroupID
	}
	delete(groups, "doctor")
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		_, place, about := strings.Cut(title, "About a ")
		if !about {
			place = strings.ToLower(title)
		}
		for _, name := range regexp.MustCompile("\\*\\*`cpumem ([a-z]+)").FindAllStringSubmatch(text, -1) {
			if group, is := groups[name[1]]; is {
				assert.Equal(t, group, place, name[1])
				delete(groups, name[1])
			}
		}
	}
	require.Empty(t, groups, "commands that the page does not have")
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
