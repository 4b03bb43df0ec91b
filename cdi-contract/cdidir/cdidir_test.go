// SPDX-License-Identifier: Apache-2.0

package cdidir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestRemoveStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	d, err := cdidir.Open(path)
	require.NoError(t, err)
	mine := []string{"." + contract.NodeFile + ".tmp-1", "." + contract.ClaimFile("00000000-0000-0000-0000-000000000001") + ".tmp-2"}
	others := []string{"." + contract.ActuatorFile + ".tmp-3", ".vendor.json.tmp-4", "vendor.json"}
	for _, name := range append(mine, others...) {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	require.NoError(t, d.RemoveStale())
	infos, err := d.List()
	require.NoError(t, err)
	var left []string
	for _, i := range infos {
		left = append(left, i.Name())
	}
	require.ElementsMatch(t, others, left)
	require.NoError(t, d.CheckWritable())
}

// A17: a path that is no directory is refused at start.
func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := cdidir.Open(path)
	require.ErrorContains(t, err, "not a directory")
}

// A file is read again if it was replaced, and only then.
func TestReadNew(t *testing.T) {
	path := t.TempDir()
	d := cdidir.At(path)
	var known cdidir.Identity
	_, id, err := d.ReadNew("a", known)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, known, id)

	for _, content := range []string{"old", "new"} {
		require.NoError(t, d.Write("a", []byte(content)))
		data, id, err := d.ReadNew("a", known)
		require.NoError(t, err)
		require.Equal(t, content, string(data))
		require.NotEqual(t, known, id)
		known = id
		data, id, err = d.ReadNew("a", known)
		require.NoError(t, err)
		require.Empty(t, data)
		require.Equal(t, known, id)
	}

	require.NoError(t, d.Write("a", make([]byte, contract.MaxFileSize+1)))
	_, _, err = d.ReadNew("a", known)
	require.ErrorContains(t, err, "is larger than")
	require.NoError(t, os.Mkdir(d.Path("b"), 0o755))
	_, _, err = d.ReadNew("b", known)
	require.ErrorIs(t, err, atomicfile.ErrNotRegular)
}

func TestReadNewClosesTheFile(t *testing.T) {
	d := cdidir.At(t.TempDir())
	require.NoError(t, d.Write("a", nil))
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	// The collector would close files that were forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const times = 50
	before := open()
	for range times {
		_, _, err := d.ReadNew("a", cdidir.Identity{})
		require.NoError(t, err)
	}
	require.Less(t, open(), before+times)
}

// A file that is in no file system has an identity as well.
func TestIdentify(t *testing.T) {
	identify := func(f *fstest.MapFile) cdidir.Identity {
		info, err := fstest.MapFS{"a": f}.Stat("a")
		require.NoError(t, err)
		return cdidir.Identify(info)
	}
	at := time.Unix(1_700_000_000, 0)
	one := identify(&fstest.MapFile{Data: []byte("1"), ModTime: at})
	require.Equal(t, one, identify(&fstest.MapFile{Data: []byte("2"), ModTime: at}))
	require.NotEqual(t, one, identify(&fstest.MapFile{Data: []byte("1"), ModTime: at.Add(1)}))
	require.NotEqual(t, one, identify(&fstest.MapFile{Data: []byte("11"), ModTime: at}))
}

func TestList(t *testing.T) {
	d := cdidir.At(filepath.Join(t.TempDir(), "absent"))
	_, err := d.List()
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestCheckWritable(t *testing.T) {
	d := cdidir.At(filepath.Join(t.TempDir(), "cdi"))
	require.ErrorContains(t, d.CheckWritable(), "CDI directory "+d.String()+" is not writable")
	require.NoError(t, os.Mkdir(d.String(), 0o755))
	require.NoError(t, d.CheckWritable())
	infos, err := d.List()
	require.NoError(t, err)
	require.Empty(t, infos, "nothing is left")
	for errno, want := range map[syscall.Errno]error{
		syscall.EROFS:  syscall.EROFS,
		syscall.ENOENT: nil, // the other instance has removed the file
	} {
		err := contracttest.Failing(t, syscall.SYS_UNLINKAT, errno, func(fail func()) error {
			fail()
			return d.CheckWritable()
		})
		require.ErrorIs(t, err, want)
	}
}

// Two open files stand for two processes: the kernel gives the lock to an open file,
// not to a process.
func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := cdidir.NewLock(path).Acquire()
	require.NoError(t, err)
	other, err := os.Open(path)
	require.NoError(t, err)
	defer other.Close()
	try := func() error { return syscall.Flock(int(other.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	require.ErrorIs(t, try(), syscall.EWOULDBLOCK)
	require.NoError(t, release())
	require.NoError(t, try())
}

func TestLockFails(t *testing.T) {
	_, err := cdidir.NewLock(filepath.Join(t.TempDir(), "absent", "lock")).Acquire()
	require.ErrorIs(t, err, fs.ErrNotExist)
	path := filepath.Join(t.TempDir(), "lock")
	err = contracttest.Failing(t, syscall.SYS_FLOCK, syscall.ENOLCK, func(fail func()) error {
		fail()
		_, err := cdidir.NewLock(path).Acquire()
		return err
	})
	require.ErrorIs(t, err, syscall.ENOLCK)
	require.ErrorContains(t, err, "lock "+path)
}
