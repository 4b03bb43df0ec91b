// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

const (
	podSlice = "kubepods.slice/kubepods-podx.slice"
	scope    = podSlice + "/cri-containerd-1.scope"
)

// tree returns all files below dir, path to content.
func tree(t *testing.T, dir string) map[string]string {
	found := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir+"/")] = string(data)
		return err
	}))
	return found
}

func TestDropins(t *testing.T) {
	dir := t.TempDir()
	d := systemd.NewDropins(dir)
	require.NoError(t, d.Set(scope, map[string]string{"cpuset.cpus": "0-3,8", "cpuset.mems": "0", "memory.min": "4096"}))
	require.NoError(t, d.Set(scope, map[string]string{"cpuset.cpus": "0-2", "cpuset.mems": "0-1"}))
	require.NoError(t, d.Set(podSlice, map[string]string{"cpuset.cpus": "1"}))
	require.NoError(t, d.Set("kubepods/podx/1", map[string]string{"cpuset.cpus": "1"}), "no unit")
	require.NoError(t, d.Set(podSlice, map[string]string{"memory.min": "1"}), "no cpuset")
	require.Error(t, d.Set(scope, map[string]string{"cpuset.cpus": "1\nDelegate=yes"}))
	scopeFile, sliceFile := "cri-containerd-1.scope.d/90-dra.cpumem.conf", "kubepods-podx.slice.d/90-dra.cpumem.conf"
	want := map[string]string{
		scopeFile: "[Scope]\nAllowedCPUs=\nAllowedCPUs=0-2\nAllowedMemoryNodes=\nAllowedMemoryNodes=0-1\n",
		sliceFile: "[Slice]\nAllowedCPUs=\nAllowedCPUs=1\n",
	}
	require.Equal(t, want, tree(t, dir))

	// Other programs' drop-ins stay.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubepods-podx.slice.d/50-MemoryMin.conf"), nil, 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "other.scope.d"), 0o755))
	require.NoError(t, d.Prune([]string{scope}))
	require.Equal(t, map[string]string{scopeFile: want[scopeFile], "kubepods-podx.slice.d/50-MemoryMin.conf": ""}, tree(t, dir))
	require.DirExists(t, filepath.Join(dir, "other.scope.d"))
	require.NoError(t, d.Remove(scope))
	require.NoError(t, d.Remove(scope))
	require.NoDirExists(t, filepath.Join(dir, "cri-containerd-1.scope.d"))
}

// An actuator that ended during a write has left a temporary file, with or without the drop-in.
func TestTemporaryDropins(t *testing.T) {
	dir := t.TempDir()
	d := systemd.NewDropins(dir)
	require.NoError(t, d.Set(scope, map[string]string{"cpuset.cpus": "0-3"}))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "kubepods-podx.slice.d"), 0o755))
	for _, unit := range []string{"cri-containerd-1.scope.d", "kubepods-podx.slice.d"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, unit, ".dra.cpumem-X"), nil, 0o644))
	}
	require.NoError(t, d.Remove(scope))
	require.NoError(t, d.Prune(nil))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestDropinsWithoutSystemd(t *testing.T) {
	d := systemd.NewDropins(filepath.Join(t.TempDir(), "absent"))
	require.NoError(t, d.Remove(scope))
	require.NoError(t, d.Prune(nil))
	require.ErrorContains(t, d.Set(scope, map[string]string{"cpuset.cpus": "1"}), "drop-in of unit cri-containerd-1.scope")
}

// TestDropinIsCorrected: a drop-in that differs from the files is rewritten. No
// drop-in is made if systemd has the runtime's values.
func TestDropinIsCorrected(t *testing.T) {
	dir := t.TempDir()
	d := systemd.NewDropins(dir)
	want := map[string]string{"cpuset.cpus": "0-3"}
	require.NoError(t, d.Correct(scope, want))
	require.NoError(t, d.Correct("kubepods/podx/1", want), "no unit")
	require.Empty(t, tree(t, dir))
	require.NoError(t, d.Set(scope, map[string]string{"cpuset.cpus": "0-15"}))
	require.NoError(t, d.Correct(scope, want))
	require.Equal(t, map[string]string{
		"cri-containerd-1.scope.d/90-dra.cpumem.conf": "[Scope]\nAllowedCPUs=\nAllowedCPUs=0-3\n",
	}, tree(t, dir))
	require.Error(t, d.Correct(scope, map[string]string{"cpuset.cpus": "1\nDelegate=yes"}))
}
