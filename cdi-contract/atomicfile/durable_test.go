// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// A write that the disk fails is an error, and the old content stays until the new
// content is on the disk.
func TestFailingDisk(t *testing.T) {
	write := func(dir string, fail func()) error {
		fail()
		return atomicfile.Write(dir, "a.json", []byte("new"), 0o600)
	}
	for name, c := range map[string]struct {
		number uintptr
		errno  syscall.Errno
		call   func(dir string, fail func()) error
		err    string
		// files are what stays of a.json.
		files map[string]string
	}{
		"content not written": {
			number: syscall.SYS_WRITE,
			errno:  syscall.EAGAIN, // the one error that the Go runtime's own writes get over
			call:   write,
			err:    "write ",
			files:  map[string]string{"a.json": "old"},
		},
		"kind of file not known": {
			number: syscall.SYS_FSTAT,
			errno:  syscall.EIO,
			call: func(dir string, fail func()) error {
				fail()
				_, err := atomicfile.Read(dir, "a.json", 3)
				return err
			},
			err:   "stat ",
			files: map[string]string{"a.json": "old"},
		},
		"mode not set": {
			number: syscall.SYS_FCHMOD,
			errno:  syscall.EROFS,
			call:   write,
			err:    "chmod ",
			files:  map[string]string{"a.json": "old"},
		},
		"content not on the disk": {
			number: syscall.SYS_FSYNC,
			errno:  syscall.EIO,
			call:   write,
			err:    "sync ",
			files:  map[string]string{"a.json": "old"},
		},
		"rename not on the disk": {
			number: syscall.SYS_FSYNC,
			errno:  syscall.EIO,
			call: func(dir string, fail func()) error {
				_, err := atomicfile.WriteHeld(dir, "a.json", []byte("new"), 0o600, func(*os.File) error { fail(); return nil })
				return err
			},
			err:   "sync directory ",
			files: map[string]string{"a.json": "new"},
		},
		"removal not on the disk": {
			number: syscall.SYS_FSYNC,
			errno:  syscall.EIO,
			call: func(dir string, fail func()) error {
				fail()
				return atomicfile.Remove(dir, "a.json")
			},
			err:   "sync directory ",
			files: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, atomicfile.Write(dir, "a.json", []byte("old"), 0o600))
			err := contracttest.Failing(t, c.number, c.errno, func(fail func()) error { return c.call(dir, fail) })
			require.ErrorIs(t, err, c.errno)
			require.ErrorContains(t, err, c.err)
			files := map[string]string{}
			for _, name := range names(t, dir) {
				data, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				files[name] = string(data)
			}
			require.Equal(t, c.files, files)
		})
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.json")
	require.NoError(t, os.MkdirAll(filepath.Join(file, "entry"), 0o755))
	require.ErrorContains(t, atomicfile.Remove(dir, "a.json"), "directory not empty")
	require.ErrorIs(t, atomicfile.SyncDir(filepath.Join(dir, "absent")), os.ErrNotExist)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".b.json.tmp-1", "entry"), 0o755))
	require.ErrorContains(t, atomicfile.RemoveStale(dir, func(string) bool { return true }), "directory not empty")

	opened, err := os.Open(dir)
	require.NoError(t, err)
	defer opened.Close()
	_, err = atomicfile.ReadAll(opened, 1)
	require.ErrorContains(t, err, "is a directory")
}

// No call leaves a file open.
func TestFilesAreClosed(t *testing.T) {
	dir := t.TempDir()
	open := func() int { return len(names(t, "/proc/self/fd")) }
	// The collector would close files that were forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const times = 50
	before := open()
	for range times {
		require.NoError(t, atomicfile.Write(dir, "a.json", nil, 0o600))
		_, err := atomicfile.Read(dir, "a.json", 1)
		require.NoError(t, err)
		require.NoError(t, atomicfile.Remove(dir, "a.json"))
	}
	require.Less(t, open(), before+times)
}
