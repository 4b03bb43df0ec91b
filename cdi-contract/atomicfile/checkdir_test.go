// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

func TestCheckDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, atomicfile.CheckDir(dir))

	// A descriptor shows a removed directory, as a mount does.
	held, err := os.Open(dir)
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, os.Remove(dir))
	require.ErrorIs(t, atomicfile.CheckDir(dir), os.ErrNotExist)
	require.ErrorIs(t, atomicfile.CheckDir(filepath.Join("/proc/self/fd", fd(held))), atomicfile.ErrReplaced)
}

func fd(f *os.File) string { return strconv.Itoa(int(f.Fd())) }
