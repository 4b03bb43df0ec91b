// SPDX-License-Identifier: Apache-2.0

package installation_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard/installation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

func TestInstall(t *testing.T) {
	dir, self := filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "self")
	require.NoError(t, os.WriteFile(self, []byte("v1"), 0o755))
	first, err := installation.Install(dir, self)
	require.NoError(t, err)
	info, err := os.Stat(first)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())

	again, err := installation.Install(dir, self)
	require.NoError(t, err)
	require.Equal(t, first, again)
	same, err := os.Stat(first)
	require.NoError(t, err)
	require.True(t, os.SameFile(info, same), "an installed guard is not written again")

	for name, damage := range map[string]func() error{
		"torn":         func() error { return os.WriteFile(first, []byte("torn"), 0o755) },
		"not runnable": func() error { return os.Chmod(first, 0o644) },
		"a FIFO":       func() error { return errors.Join(os.Remove(first), syscall.Mkfifo(first, 0o755)) },
		"removed":      func() error { return os.Remove(first) },
	} {
		require.NoError(t, damage(), name)
		_, err = installation.Install(dir, self)
		require.NoError(t, err, name)
		data, err := os.ReadFile(first)
		require.NoError(t, err, name)
		require.Equal(t, "v1", string(data), name)
		info, err := os.Stat(first)
		require.NoError(t, err, name)
		require.Equal(t, os.FileMode(0o755), info.Mode(), name)
	}

	require.NoError(t, os.WriteFile(self, []byte("v2"), 0o755))
	second, err := installation.Install(dir, self)
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.FileExists(t, first)

	_, err = installation.Install("relative", self)
	require.ErrorContains(t, err, "absolute")
	_, err = installation.Install(dir, filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A guard that is not in its place is not announced.
func TestInstallFails(t *testing.T) {
	work := t.TempDir()
	self, dir := filepath.Join(work, "self"), filepath.Join(work, "bin")
	require.NoError(t, os.WriteFile(self, []byte("v1"), 0o755))
	_, err := installation.Install(filepath.Join(self, "below"), self)
	require.ErrorContains(t, err, "not a directory")
	_, err = installation.Install(dir, work)
	require.ErrorContains(t, err, "guard: read "+work)

	path, err := installation.Install(dir, self)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path, "entry"), 0o755))
	_, err = installation.Install(dir, self)
	require.ErrorContains(t, err, "guard: rename")
	require.NoError(t, os.RemoveAll(path))

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "."+filepath.Base(path)+".tmp-1", "entry"), 0o755))
	_, err = installation.Install(dir, self)
	require.ErrorContains(t, err, "directory not empty")
}

// An actuator that was rolled back announces a guard that was installed long ago. The next actuator keeps this guard: claims
// are prepared with it until the old actuator ends.
func TestPruneKeepsTheGuardOfARollback(t *testing.T) {
	dir, self, cdi := filepath.Join(t.TempDir(), "bin"), filepath.Join(t.TempDir(), "self"), t.TempDir()
	install := func(version string, seconds int64) string {
		require.NoError(t, os.WriteFile(self, []byte(version), 0o755))
		path, err := installation.Install(dir, self)
		require.NoError(t, err)
		if seconds > 0 {
			at := time.Unix(seconds, 0)
			require.NoError(t, os.Chtimes(path, at, at))
		}
		return path
	}
	for i, version := range []string{"v1", "v2", "v3"} {
		install(version, int64(1000+i))
	}
	rolledBack := install("v1", 0)
	require.NoError(t, installation.Prune(dir, rolledBack, cdi))
	require.NoError(t, installation.Prune(dir, install("v4", 0), cdi))
	require.FileExists(t, rolledBack)
}

// TestPrune: a guard that a claim file names stays, whatever its age.
func TestPrune(t *testing.T) {
	dir, cdi := t.TempDir(), t.TempDir()
	guards := make([]string, 6)
	for i := range guards {
		guards[i] = filepath.Join(dir, "nri-actuator-"+strings.Repeat(string(rune('a'+i)), 12))
		require.NoError(t, os.WriteFile(guards[i], nil, 0o755))
		at := time.Unix(int64(1000+i), 0)
		require.NoError(t, os.Chtimes(guards[i], at, at))
	}
	other := filepath.Join(dir, "somebody-else")
	require.NoError(t, os.WriteFile(other, nil, 0o644))
	directory := filepath.Join(dir, "nri-actuator-directory")
	require.NoError(t, os.Mkdir(directory, 0o755))
	require.NoError(t, os.Chtimes(directory, time.Unix(1, 0), time.Unix(1, 0)))
	claim := filepath.Join(cdi, contract.ClaimFile(testnode.UID(1)))
	require.NoError(t, os.WriteFile(claim, []byte(`{"path":"`+guards[0]+`"}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(cdi, contract.ClaimFile(testnode.UID(2))), nil, 0o600), "it names no guard")

	require.NoError(t, installation.Prune(dir, guards[1], cdi))
	for i, want := range []bool{true, true, false, true, true, true} {
		_, err := os.Stat(guards[i])
		require.Equal(t, want, err == nil, guards[i])
	}
	require.FileExists(t, other)
	require.DirExists(t, directory)

	require.NoError(t, os.Remove(claim))
	require.NoError(t, os.Mkdir(claim, 0o755))
	require.Error(t, installation.Prune(dir, guards[5], cdi), "an unreadable claim file")
	require.ErrorContains(t, installation.Prune(dir, guards[5], guards[5]), "claim files", "an unreadable directory")
	require.FileExists(t, guards[0])
	require.ErrorIs(t, installation.Prune(filepath.Join(dir, "absent"), guards[5], t.TempDir()), os.ErrNotExist)
}
