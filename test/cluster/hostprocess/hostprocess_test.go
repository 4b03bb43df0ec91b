// SPDX-License-Identifier: Apache-2.0

package hostprocess

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

func TestStartScript(t *testing.T) {
	options := cluster.Defaults()
	options.Nodes, options.Systemd = 2, []string{"node1"}
	c := cluster.New(t.TempDir(), options)
	for node, want := range map[string]string{"node0": ">/sys/fs/cgroup/hog/cgroup.procs", "node1": "--unit=hog"} {
		t.Run(node, func(t *testing.T) {
			p := &Process{cluster: c, node: node, name: "hog"}
			script := p.startScript([]string{"observe", "0-3", "it's"})
			require.Contains(t, script, want)
			require.Contains(t, script, `/share/probe 'observe' '0-3' 'it'\''s'`)
			require.NoError(t, exec.Command("sh", "-n", "-c", script).Run(), script)
		})
	}
}

func TestShare(t *testing.T) {
	c := cluster.New(t.TempDir(), cluster.Defaults())
	shared := filepath.Join(filepath.Dir(c.Kubeconfig()), "node0", "share")
	require.ErrorIs(t, share(c, "node0"), os.ErrNotExist, "nothing is built")
	require.NoError(t, os.MkdirAll(shared, 0o755))
	require.NoError(t, os.MkdirAll(filepath.Dir(c.Program(program)), 0o755))
	for _, text := range []string{"one", "two", "two"} {
		require.NoError(t, os.WriteFile(c.Program(program), []byte(text), 0o755))
		require.NoError(t, share(c, "node0"))
		data, err := os.ReadFile(filepath.Join(shared, program))
		require.NoError(t, err)
		require.Equal(t, text, string(data))
	}
}
