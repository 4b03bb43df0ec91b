// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// A file that is not regular is refused without waiting: a FIFO without a
// writer would block its reader for ever, and every lock that the reader holds.
func TestReadOfNoRegularFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "written"), 0o600))
	writer, err := os.OpenFile(filepath.Join(dir, "written"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(os.DevNull, filepath.Join(dir, "device")))
	for _, name := range []string{"fifo", "written", "directory", "link", "device"} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() {
				_, err := atomicfile.Read(dir, name, 10)
				done <- err
			}()
			select {
			case err := <-done:
				require.ErrorContains(t, err, filepath.Join(dir, name)+" is not a regular file")
			case <-time.After(time.Minute):
				t.Fatal("the reader waits for a writer")
			}
		})
	}
}
