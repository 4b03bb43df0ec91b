// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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

// A57: a wrong command line is an error before anything starts.
func TestCommandLine(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	bad := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("groupBy: rack"), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":       {[]string{"--nodename", "x"}, "unknown flag: --nodename"},
		"an argument":        {[]string{"node0"}, `unknown command "node0"`},
		"no node name":       {nil, "--node-name or NODE_NAME is required"},
		"log level":          {[]string{"--node-name", "x", "--log-level", "loud"}, "--log-level"},
		"no such file":       {[]string{"--node-name", "x", "--config", bad + ".not"}, "no such file"},
		"bad configuration":  {[]string{"--node-name", "x", "--config", bad}, `groupBy: "rack"`},
		"outside of cluster": {[]string{"--node-name", "x"}, "API server"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(tc.args...)
			require.ErrorContains(t, err, tc.want)
		})
	}
	out, err := execute("--help")
	require.NoError(t, err)
	require.Contains(t, out, "--metrics-address")
	out, err = execute("--version")
	require.NoError(t, err)
	require.Contains(t, out, "dra-frontend version")
}

// The reason for which the program ends is a line of its log.
func TestEndIsLogged(t *testing.T) {
	program := filepath.Join(t.TempDir(), "dra-frontend")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte("groupBy: rack\nreservedCPUs: x\n"), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a wrong flag":          {[]string{"--nodename=x"}, "unknown flag: --nodename"},
		"a wrong configuration": {[]string{"--node-name=x", "--log-level=error", "--config=" + config}, `groupBy: "rack"`},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			cmd := exec.CommandContext(t.Context(), program, tc.args...)
			cmd.Stderr = &errs
			require.Error(t, cmd.Run())
			require.Equal(t, 1, cmd.ProcessState.ExitCode())
			var line struct{ Level, Msg, Error string }
			require.NoError(t, json.Unmarshal(errs.Bytes(), &line), errs.String())
			require.Equal(t, "error ended", line.Level+" "+line.Msg)
			require.Contains(t, line.Error, tc.want)
		})
	}
}

// The slices of other drivers stay.
func TestDeleteSlices(t *testing.T) {
	client := fake.NewClientset()
	require.NoError(t, deleteSlices(t.Context(), client))
	require.Len(t, client.Actions(), 1)
	deletion, is := client.Actions()[0].(clienttesting.DeleteCollectionAction)
	require.True(t, is)
	require.Equal(t, "resourceslices", deletion.GetResource().Resource)
	require.Equal(t, "spec.driver=dra.cpumem", deletion.GetListRestrictions().Fields.String())
}
