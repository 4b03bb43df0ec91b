// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapture(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine.tar.gz")
	out, err := execute("capture", "-o", file)
	require.NoError(t, err)
	require.Empty(t, out)

	here, err := execute("inspect")
	require.NoError(t, err)
	there, err := execute("inspect", "--from", file)
	require.NoError(t, err)
	require.Equal(t, here, there)
	out, err = execute("inspect", "--from", file, "-o", "json")
	require.NoError(t, err)
	require.Contains(t, out, `"memoryType": "dram"`)

	// Redirected output is the file.
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	out, err = execute("capture")
	require.NoError(t, err)
	require.Equal(t, data[:2], []byte(out)[:2])

	require.NoError(t, os.WriteFile(file, data[:len(data)/2], 0o600))
	_, err = execute("inspect", "--from", file)
	require.ErrorContains(t, err, file+": capture: damaged or cut off")
	_, err = execute("inspect", "--from", file+"x")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = execute("inspect", "-o", "yaml")
	require.ErrorContains(t, err, `--output "yaml": want table or json`)
	_, err = execute("capture", "-o", filepath.Join(file, "below"))
	require.Error(t, err)
}

func TestNoCaptureOnATerminal(t *testing.T) {
	// A device with characters, as a terminal is.
	terminal, err := os.Open("/dev/zero")
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	cmd := command()
	cmd.SetOut(terminal)
	cmd.SetArgs([]string{"capture"})
	require.ErrorContains(t, cmd.Execute(), "nothing for a terminal")

	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = null.Close() })
	cmd.SetOut(null)
	require.NoError(t, cmd.Execute())
}
