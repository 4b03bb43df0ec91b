// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// A reader that opened the file just before its replacement must not take the
// actuator for dead. The test is in the package to stop between open and read.
func TestReadHeldOfAReplacedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ActuatorFile)
	announce := func(generation uint64) *os.File {
		data, err := EncodeAnnouncement(Announcement{V: Version, Generation: generation})
		require.NoError(t, err)
		f, err := atomicfile.WriteHeld(dir, ActuatorFile, data, 0o600, LockAnnouncement)
		require.NoError(t, err)
		return f
	}
	first := announce(1)
	opened, err := os.Open(path)
	require.NoError(t, err)
	defer opened.Close()
	content, err := readHeld(opened, path)
	require.NoError(t, err)
	got, err := DecodeAnnouncement(content)
	require.NoError(t, err)
	require.Equal(t, uint64(1), got.Generation)

	second := announce(2)
	require.NoError(t, first.Close())
	_, err = readHeld(opened, path)
	require.ErrorIs(t, err, errReplaced)
	got, err = ReadAnnouncement(dir)
	require.NoError(t, err)
	require.Equal(t, uint64(2), got.Generation)

	again, err := os.Open(path)
	require.NoError(t, err)
	defer again.Close()
	require.NoError(t, second.Close())
	_, err = readHeld(again, path)
	require.ErrorIs(t, err, ErrActuatorDead, "dead, not replaced")
}
