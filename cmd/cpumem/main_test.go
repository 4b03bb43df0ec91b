// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func execute(args ...string) (string, error) {
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestCommands(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte("groupBy: machine"), 0o600))

	out, err := execute("inspect", "--config", config)
	require.NoError(t, err)
	require.Contains(t, out, "machine")
	out, err = execute("validate", "--config", config)
	require.NoError(t, err)
	require.Contains(t, out, "is valid")

	require.NoError(t, os.WriteFile(config, []byte("groupBy: rack"), 0o600))
	_, err = execute("validate", "--config", config)
	require.ErrorContains(t, err, `groupBy: "rack"`)
	_, err = execute("validate", "--cdi-dir", t.TempDir())
	require.ErrorContains(t, err, "dra.cpumem-node.json")
	_, err = execute("explain", "--cdi-dir", filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	out, err = execute("explain", "--cdi-dir", t.TempDir())
	require.ErrorContains(t, err, "problems in the CDI directory: 2")
	require.Contains(t, out, "problem: dra.cpumem-node.json")
	out, err = execute("explain", "--cdi-dir", t.TempDir(), "-o", "json")
	require.ErrorContains(t, err, "problems in the CDI directory: 2")
	require.Contains(t, out, `"problems": [`)
	_, err = execute("explain", "--cdi-dir", t.TempDir(), "default/none")
	require.ErrorContains(t, err, `no prepared claim "default/none" on this node`)
}
