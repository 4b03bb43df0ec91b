// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
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
