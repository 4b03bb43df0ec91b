// SPDX-License-Identifier: Apache-2.0

package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

func names(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, atomicfile.Write(dir, "a.json", []byte("old"), 0o600))
	before, err := os.Open(filepath.Join(dir, "a.json"))
	require.NoError(t, err)
	defer before.Close()

	require.NoError(t, atomicfile.Write(dir, "a.json", []byte("new"), 0o644))
	require.Equal(t, []string{"a.json"}, names(t, dir))
	data, err := atomicfile.Read(dir, "a.json", 3)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))

	old := make([]byte, 8)
	n, err := before.Read(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(old[:n]), "replaced, not overwritten: who had it open sees the old content")
}

func TestWriteMode(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o644} {
		dir := t.TempDir()
		require.NoError(t, atomicfile.Write(dir, "a.json", nil, mode))
		info, err := os.Stat(filepath.Join(dir, "a.json"))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), "whatever the umask is")
	}
}

func TestWriteHeld(t *testing.T) {
	dir := t.TempDir()
	var during []string
	f, err := atomicfile.WriteHeld(dir, "a.json", []byte("x"), 0o600, func(f *os.File) error {
		during = names(t, dir)
		data, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		require.Equal(t, "x", string(data), "the content is there before the name is taken")
		return nil
	})
	require.NoError(t, err)
	require.Len(t, during, 1)
	require.True(t, strings.HasPrefix(during[0], ".a.json.tmp-"), "%s: a name no CDI reader takes, in the same directory", during[0])
	require.Equal(t, []string{"a.json"}, names(t, dir))
	opened, err := f.Stat()
	require.NoError(t, err)
	named, err := os.Stat(filepath.Join(dir, "a.json"))
	require.NoError(t, err)
	require.True(t, os.SameFile(opened, named))
	require.NoError(t, f.Close())
}

func TestWriteErrorsLeaveNothing(t *testing.T) {
	t.Run("before the name is taken", func(t *testing.T) {
		dir, boom := t.TempDir(), errors.New("boom")
		require.NoError(t, atomicfile.Write(dir, "a.json", []byte("old"), 0o600))
		f, err := atomicfile.WriteHeld(dir, "a.json", []byte("new"), 0o600, func(*os.File) error { return boom })
		require.ErrorIs(t, err, boom)
		require.Nil(t, f)
		require.Equal(t, []string{"a.json"}, names(t, dir))
		data, err := atomicfile.Read(dir, "a.json", 3)
		require.NoError(t, err)
		require.Equal(t, "old", string(data))
	})
	t.Run("the name is a directory", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "a.json"), 0o700))
		require.Error(t, atomicfile.Write(dir, "a.json", []byte("new"), 0o600))
		require.Equal(t, []string{"a.json"}, names(t, dir))
	})
	t.Run("file closed meanwhile", func(t *testing.T) {
		dir := t.TempDir()
		_, err := atomicfile.WriteHeld(dir, "a.json", nil, 0o600, func(f *os.File) error { return errors.Join(f.Close(), errors.New("boom")) })
		require.ErrorContains(t, err, "boom")
		require.Empty(t, names(t, dir))
	})
	t.Run("no directory", func(t *testing.T) {
		require.ErrorIs(t, atomicfile.Write(filepath.Join(t.TempDir(), "cdi"), "a.json", nil, 0o600), fs.ErrNotExist)
	})
	t.Run("the directory is a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cdi")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.Error(t, atomicfile.Write(path, "a.json", nil, 0o600))
	})
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte("1234"), 0o600))
	data, err := atomicfile.Read(dir, "a.json", 4)
	require.NoError(t, err)
	require.Equal(t, "1234", string(data))
	_, err = atomicfile.Read(dir, "a.json", 3)
	require.ErrorContains(t, err, "larger than 3 bytes")
	_, err = atomicfile.Read(dir, "b.json", 3)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, atomicfile.Write(dir, "a.json", nil, 0o600))
	require.NoError(t, atomicfile.Remove(dir, "a.json"))
	require.Empty(t, names(t, dir))
	require.NoError(t, atomicfile.Remove(dir, "a.json"), "absent is success")
	require.Error(t, atomicfile.Remove(filepath.Join(dir, "cdi"), "a.json"), "without the directory nothing is known")
}

func TestRemoveStale(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		".mine.json.tmp-1", ".mine.json.tmp-2.tmp-3", // stale
		".other.json.tmp-1", // another program is writing it
		"mine.json", ".mine.json", "mine.json.tmp-1", ".mine.json.swp", "..mine.json.tmp-1",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, atomicfile.RemoveStale(dir, func(name string) bool { return name == "mine.json" }))
	require.ElementsMatch(t, []string{
		".other.json.tmp-1", "mine.json", ".mine.json", "mine.json.tmp-1", ".mine.json.swp", "..mine.json.tmp-1",
	}, names(t, dir))
	require.Error(t, atomicfile.RemoveStale(filepath.Join(dir, "cdi"), func(string) bool { return true }))
}
