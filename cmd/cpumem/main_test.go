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
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte("layout: sidecar\nconfig: {groupBy: socket, reservedCPUs: '99'}\n"), 0o600))
	out, err = execute("validate", "--values", values)
	require.NoError(t, err)
	require.Equal(t, "the key config of "+values+" is valid\n", out)
	machine := filepath.Join(t.TempDir(), "machine.tar.gz")
	_, err = execute("capture", "-o", machine)
	require.NoError(t, err)
	_, err = execute("validate", "--values", values, "--from", machine)
	require.ErrorContains(t, err, machine+": configuration does not fit this machine: reservedCPUs 99")
	require.NoError(t, os.WriteFile(values, []byte("config: {groupBy: socket}\n"), 0o600))
	out, err = execute("validate", "--values", values, "--from", machine)
	require.NoError(t, err)
	require.Contains(t, out, " is valid, and fits the machine of "+machine+": ")
	require.NoError(t, os.WriteFile(values, []byte("config: {groupby: socket, cpu: {placement: near}}\n"), 0o600))
	_, err = execute("validate", "--values", values)
	require.ErrorContains(t, err, "did you mean groupBy?")
	require.ErrorContains(t, err, `cpu.placement: "near"`)
	for text, want := range map[string]string{
		"confg: {}": "it has no key config", "config: {groupBy: socket, groupBy: machine}": "already set", "[]": values,
	} {
		require.NoError(t, os.WriteFile(values, []byte(text), 0o600))
		_, err = execute("validate", "--values", values)
		require.ErrorContains(t, err, want)
	}
	_, err = execute("validate", "--from", machine)
	require.ErrorContains(t, err, "--from needs --config or --values")
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
	require.EqualError(t, err, `no prepared claim "default/none" on this node: want NAMESPACE/CLAIM or the claim's UID; `+
		"cpumem explain lists them")
}
