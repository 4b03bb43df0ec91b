// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

// The dry run on plain files: which files the kernel must have, and how its
// answer is read. Real answers are tried in the cluster.
func TestPartitions(t *testing.T) {
	const probe = "kubepods/dra.cpumem.probe"
	for name, c := range map[string]struct {
		change func(t *testing.T, mount string)
		err    string
		final  bool // the kernel has no partitions
	}{
		"it can": {func(*testing.T, string) {}, "", false},
		"no such file": {func(t *testing.T, mount string) {
			require.NoError(t, os.Remove(filepath.Join(mount, probe, "partition/cpuset.cpus.exclusive")))
		}, "no file cpuset.cpus.exclusive", true},
		"kubepods does not have cpusets yet": {func(t *testing.T, mount string) {
			require.NoError(t, os.Remove(filepath.Join(mount, probe, "cgroup.subtree_control")))
		}, "cgroup.subtree_control", false},
		"not the root": {func(t *testing.T, mount string) {
			require.NoError(t, os.WriteFile(filepath.Join(mount, "cgroup.events"), nil, 0o644))
		}, "not the root of the hierarchy", true},
		"no kubepods": {func(t *testing.T, mount string) {
			require.NoError(t, os.RemoveAll(filepath.Join(mount, "kubepods")))
		}, "dry run", false},
		"no CPUs": {func(t *testing.T, mount string) {
			require.NoError(t, os.WriteFile(filepath.Join(mount, probe, "partition/cpuset.cpus.effective"), []byte("x\n"), 0o644))
		}, "cpuset.cpus.effective", false},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(mount, probe, "partition"), 0o755))
			for file, content := range map[string]string{
				"cgroup.subtree_control":          "",
				"partition/cpuset.cpus.effective": "2-3",
				"partition/cpuset.cpus.exclusive": "",
				"partition/cpuset.cpus.partition": "member",
			} {
				require.NoError(t, os.WriteFile(filepath.Join(mount, probe, file), []byte(content+"\n"), 0o644))
			}
			c.change(t, mount)
			tree, err := cgroups.Open(mount)
			require.NoError(t, err)
			defer tree.Close()
			err = tree.ProbePartitions("kubepods")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, c.final, errors.Is(err, errors.ErrUnsupported), "it is not tried again")
				return
			}
			require.NoError(t, err)
			got, err := tree.Read(probe+"/partition", "cpuset.cpus.exclusive")
			require.NoError(t, err)
			require.Equal(t, "2", got, "a CPU, which its parent does not give it")
		})
	}
}
