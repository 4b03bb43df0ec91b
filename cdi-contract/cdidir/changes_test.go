// SPDX-License-Identifier: Apache-2.0

package cdidir_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

func changes(dir string) *cdidir.Changes {
	return cdidir.At(dir).Changes(cdidir.Watch{
		Renew: time.Hour, Concerns: func(e fsnotify.Event) bool { return filepath.Base(e.Name) == "file" }, Warn: func(string, error) {},
	})
}

// TestChangesConcern: the watch reports the events that concern its reader, and no
// other.
func TestChangesConcern(t *testing.T) {
	dir := t.TempDir()
	var seen []string
	c := cdidir.At(dir).Changes(cdidir.Watch{Renew: time.Hour, Warn: func(string, error) {}, Concerns: func(e fsnotify.Event) bool {
		seen = append(seen, filepath.Base(e.Name))
		return filepath.Base(e.Name) == "file"
	}})
	c.Start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "file"), 0o755))
	<-c.C()
	cancel()
	running.Wait()
	require.Equal(t, []string{"other", "file"}, seen)
	select {
	case <-c.C():
		require.Fail(t, "one event concerns the reader")
	default:
	}
}

// TestChangesOfAReplacedDirectory: a directory that was removed and made again is
// polled until the watch is set again.
func TestChangesOfAReplacedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.Mkdir(dir, 0o755))
	c := changes(dir)
	c.Start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	<-c.C()
}

// TestChangesWithoutInotify: the directory is polled if the kernel has no inotify
// instance left.
func TestChangesWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	c := changes(dir)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-c.C() // the first poll
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	<-c.C()
}

// TestChangesWithoutAWatch: the directory is polled while it cannot be watched.
func TestChangesWithoutAWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	c := changes(dir)
	c.Start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	require.NoError(t, os.Mkdir(dir, 0o755))
	<-c.C()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	<-c.C()
}
