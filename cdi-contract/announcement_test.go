// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// announce writes an announcement as the actuator does and returns the locked
// file.
func announce(t testing.TB, dir string, a contract.Announcement) *os.File {
	data, err := contract.EncodeAnnouncement(a)
	require.NoError(t, err)
	f, err := atomicfile.WriteHeld(dir, contract.ActuatorFile, data, 0o600, contract.LockAnnouncement)
	require.NoError(t, err)
	return f
}

// The frontend reads the announcement every second: unchanged content is not decoded
// again, and the lock is asked for in any case.
func TestAnnouncementReader(t *testing.T) {
	dir, want := t.TempDir(), goldenAnnouncements()["announcement"]
	r := contract.NewAnnouncementReader(dir)
	_, err := r.Read()
	require.ErrorIs(t, err, contract.ErrActuatorDead)
	f := announce(t, dir, want)
	read := func() {
		got, err := r.Read()
		require.NoError(t, err)
		require.Equal(t, want.Generation, got.Generation)
	}
	read()
	again := testing.AllocsPerRun(10, read)
	require.Less(t, again, testing.AllocsPerRun(10, func() {
		_, err := contract.ReadAnnouncement(dir)
		require.NoError(t, err)
	})/2)
	want.Generation++
	g := announce(t, dir, want)
	read()
	require.NoError(t, f.Close())
	read()
	require.NoError(t, g.Close())
	_, err = r.Read()
	require.ErrorIs(t, err, contract.ErrActuatorDead, "the content is the same, and nobody holds the lock")
}

// Several goroutines of the frontend share a reader.
func TestAnnouncementReader_Concurrent(t *testing.T) {
	dir, want := t.TempDir(), goldenAnnouncements()["announcement"]
	r := contract.NewAnnouncementReader(dir)
	f := announce(t, dir, want)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 100 {
				if _, err := r.Read(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 50 {
		want.Generation++
		next := announce(t, dir, want)
		require.NoError(t, f.Close())
		f = next
	}
	readers.Wait()
	got, err := r.Read()
	require.NoError(t, err)
	require.Equal(t, want.Generation, got.Generation)
	require.NoError(t, f.Close())
}

// Content that cannot be read does not leave the former content behind.
func TestAnnouncementReader_Broken(t *testing.T) {
	dir := t.TempDir()
	r := contract.NewAnnouncementReader(dir)
	f := announce(t, dir, goldenAnnouncements()["announcement"])
	defer f.Close()
	_, err := r.Read()
	require.NoError(t, err)
	for _, data := range []string{"", "{"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, contract.ActuatorFile), []byte(data), 0o600))
		for range 2 {
			_, err = r.Read()
			require.ErrorContains(t, err, contract.ActuatorFile)
			require.NotErrorIs(t, err, contract.ErrActuatorDead)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, contract.ActuatorFile), make([]byte, contract.MaxFileSize+1), 0o600))
	_, err = r.Read()
	require.ErrorContains(t, err, "is larger than")
}

func TestReadAnnouncement(t *testing.T) {
	want := goldenAnnouncements()["announcement"]
	next := want
	next.Generation++
	t.Run("absent", func(t *testing.T) {
		_, err := contract.ReadAnnouncement(t.TempDir())
		require.ErrorIs(t, err, contract.ErrActuatorDead)
	})
	t.Run("no directory", func(t *testing.T) {
		_, err := contract.ReadAnnouncement(filepath.Join(t.TempDir(), "cdi"))
		require.ErrorIs(t, err, contract.ErrActuatorDead)
	})
	t.Run("alive while held, dead after close", func(t *testing.T) {
		dir := t.TempDir()
		f := announce(t, dir, want)
		for range 2 {
			got, err := contract.ReadAnnouncement(dir)
			require.NoError(t, err)
			require.Equal(t, want, got, "reading does not take the lock away")
		}
		require.NoError(t, f.Close())
		_, err := contract.ReadAnnouncement(dir)
		require.ErrorIs(t, err, contract.ErrActuatorDead)
		require.ErrorContains(t, err, contract.ActuatorFile)
	})
	t.Run("a FIFO, which nobody can have locked", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, contract.ActuatorFile), 0o600))
		done := make(chan error, 1)
		go func() {
			_, err := contract.ReadAnnouncement(dir)
			done <- err
		}()
		select {
		case err := <-done:
			require.ErrorIs(t, err, contract.ErrActuatorDead)
			require.ErrorContains(t, err, "is not a regular file")
		case <-time.After(time.Minute):
			t.Fatal("the reader waits for a writer")
		}
		require.NoError(t, announce(t, dir, want).Close(), "an actuator puts its own in its place")
	})
	t.Run("never locked", func(t *testing.T) {
		dir := t.TempDir()
		data, err := contract.EncodeAnnouncement(want)
		require.NoError(t, err)
		require.NoError(t, atomicfile.Write(dir, contract.ActuatorFile, data, 0o600))
		_, err = contract.ReadAnnouncement(dir)
		require.ErrorIs(t, err, contract.ErrActuatorDead)
	})
	t.Run("replaced", func(t *testing.T) {
		dir := t.TempDir()
		old := announce(t, dir, want)
		held := announce(t, dir, next)
		require.NoError(t, old.Close(), "the lock of the replaced file does not matter")
		got, err := contract.ReadAnnouncement(dir)
		require.NoError(t, err)
		require.Equal(t, next, got)
		require.NoError(t, held.Close())
		_, err = contract.ReadAnnouncement(dir)
		require.ErrorIs(t, err, contract.ErrActuatorDead)
	})
	t.Run("a second holder is refused", func(t *testing.T) {
		dir := t.TempDir()
		f := announce(t, dir, want)
		second, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) { // f has the name before the rename
			second, err = os.OpenFile(filepath.Join(dir, contract.ActuatorFile), os.O_RDWR, 0)
		}
		require.NoError(t, err)
		require.ErrorContains(t, contract.LockAnnouncement(second), "lock")
		require.NoError(t, f.Close())
		require.NoError(t, contract.LockAnnouncement(second))
		require.NoError(t, second.Close())
	})
	t.Run("held, but broken", func(t *testing.T) {
		dir := t.TempDir()
		f, err := atomicfile.WriteHeld(dir, contract.ActuatorFile, []byte("{}"), 0o600, contract.LockAnnouncement)
		require.NoError(t, err)
		_, err = contract.ReadAnnouncement(dir)
		require.ErrorContains(t, err, "missing")
		require.NotErrorIs(t, err, contract.ErrActuatorDead)
		require.NoError(t, f.Close())
	})
}

func TestEncodeAnnouncement(t *testing.T) {
	want, err := contract.EncodeAnnouncement(goldenAnnouncements()["announcement-unconnected"])
	require.NoError(t, err)
	a := goldenAnnouncements()["announcement-unconnected"]
	a.Features = nil
	got, err := contract.EncodeAnnouncement(a)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "no list is an empty list")

	for name, tc := range map[string]struct {
		edit func(*contract.Announcement)
		err  string
	}{
		"version":        {func(a *contract.Announcement) { a.V = "v2" }, "version"},
		"relative guard": {func(a *contract.Announcement) { a.Guard = "guard" }, "guard path"},
		"unclean guard":  {func(a *contract.Announcement) { a.Guard = "/a//guard" }, "guard path"},

		"kubepods from the root": {func(a *contract.Announcement) { a.Kubepods = "/kubepods" }, "kubepods"},
		"kubepods elsewhere":     {func(a *contract.Announcement) { a.Kubepods = "../kubepods" }, "kubepods"},
		"kubepods is the mount":  {func(a *contract.Announcement) { a.Kubepods = "." }, "kubepods"},
	} {
		t.Run(name, func(t *testing.T) {
			a := goldenAnnouncements()["announcement"]
			tc.edit(&a)
			_, err := contract.EncodeAnnouncement(a)
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestDecodeAnnouncementRefuses(t *testing.T) {
	data, err := contract.EncodeAnnouncement(goldenAnnouncements()["announcement"])
	require.NoError(t, err)
	for name, tc := range map[string]struct{ old, new, err string }{
		"versions missing": {`\"versions\"`, `\"reads\"`, `"versions" is missing`},
		"connected gone":   {`\"connected\"`, `\"online\"`, `"connected" is missing`},
		"miscased":         {`\"nriVersion\"`, `\"NRIVersion\"`, `spelt "nriVersion"`},
		"empty runtime":    {`\"runtime\":\"containerd\"`, `\"runtime\":\"\"`, `"runtime" is empty`},
		"relative guard":   {`\"guard\":\"/`, `\"guard\":\"`, "guard path"},
		"no time":          {`2026-02-03T04:05:06Z`, `yesterday`, "parsing time"},
		"version":          {`{\"v\":\"v1\"`, `{\"v\":\"v2\"`, `version "v2"`},
		"many versions":    {`\"versions\":[`, `\"versions\":[` + strings.Repeat(`\"v9\",`, 2000), "want at most 4096"},
		"a long version":   {`\"runtimeVersion\":\"`, `\"runtimeVersion\":\"` + strings.Repeat("6", 5000), "want at most 4096"},
		"kind":             {`dra.cpumem/actuator`, `dra.cpumem/node`, "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.DecodeAnnouncement(swap(data, tc.old, tc.new))
			require.ErrorContains(t, err, tc.err)
		})
	}
}

// The frontend logs the error and gives it to kubelet, so a taken-over actuator must not choose its length.
func TestAnnouncementErrorsAreBounded(t *testing.T) {
	dir := t.TempDir()
	f := announce(t, dir, goldenAnnouncements()["announcement"])
	data, err := os.ReadFile(filepath.Join(dir, contract.ActuatorFile))
	require.NoError(t, err)
	_, err = f.WriteAt(swap(data, `dra.cpumem/actuator`, `dra.cpumem/`+strings.Repeat("x", 5000)), 0)
	require.NoError(t, err)
	_, err = contract.ReadAnnouncement(dir)
	require.ErrorContains(t, err, "bytes more")
	require.Less(t, len(err.Error()), 1000)
}
