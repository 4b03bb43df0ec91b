// SPDX-License-Identifier: Apache-2.0

package cdidir_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
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
	second := make(chan struct{})
	c := cdidir.At(dir).Changes(cdidir.Watch{Renew: time.Hour, Warn: refuse(t), Concerns: func(e fsnotify.Event) bool {
		seen = append(seen, filepath.Base(e.Name))
		if filepath.Base(e.Name) == "second" {
			close(second)
		}
		return filepath.Base(e.Name) == "file"
	}})
	c.Start()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "first"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "second"), 0o755))
	<-second
	requireNoChange(t, c)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "file"), 0o755))
	<-c.C()
	cancel()
	running.Wait()
	require.Equal(t, []string{"first", "second", "file"}, seen)
	requireNoChange(t, c)
	require.Zero(t, watches(t), "the watch ends")
}

// refuse fails the test if something is wrong with a watch.
func refuse(t *testing.T) func(string, error) {
	return func(text string, err error) { t.Errorf("%s: %v", text, err) }
}

func requireNoChange(t *testing.T, c *cdidir.Changes) {
	t.Helper()
	select {
	case <-c.C():
		require.Fail(t, "no event concerns the reader")
	default:
	}
}

// watches returns how many inotify instances this process has.
func watches(t *testing.T) (count int) {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == "anon_inode:inotify" {
			count++
		}
	}
	return count
}

// TestLostEvents: the kernel drops events if too many wait. The reader looks again.
func TestLostEvents(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	files := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	for _, file := range files {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	warned := make(chan error, 10)
	c := cdidir.At(dir).Changes(cdidir.Watch{
		Renew: time.Hour, Concerns: func(fsnotify.Event) bool { return false },
		Warn: func(_ string, err error) { warned <- err },
	})
	c.Start()
	// The watcher reads some events before it waits for its reader. Equal events one
	// after the other are one event.
	for i := range 2 * most {
		require.NoError(t, os.Chmod(files[i%2], 0o600))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-c.C()
	require.ErrorIs(t, <-warned, fsnotify.ErrEventOverflow)
}

// TestChangesAreRenewed: the watch is set again, because the directory may have been replaced. The reader looks again only if
// no watch was set before.
func TestChangesAreRenewed(t *testing.T) {
	dir := t.TempDir()
	seen := make(chan struct{}, 1000)
	watch := cdidir.Watch{Renew: time.Millisecond, Warn: refuse(t), Concerns: func(fsnotify.Event) bool {
		seen <- struct{}{}
		return false
	}}
	for name, start := range map[string]bool{"a watch that is set": true, "a watch that was not set": false} {
		t.Run(name, func(t *testing.T) {
			c := cdidir.At(dir).Changes(watch)
			if start {
				c.Start()
			}
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { c.Run(ctx) })
			defer running.Wait()
			defer cancel()
			if !start {
				<-c.C()
			}
			// Many renewals take place meanwhile.
			for range 200 {
				_, err := os.MkdirTemp(dir, "")
				require.NoError(t, err)
				<-seen
			}
			require.Empty(t, c.C(), "nothing was missed")
		})
	}
}

// TestStartWarns: the reader learns why changes are found later.
func TestStartWarns(t *testing.T) {
	var warnings []string
	start := func(dir string) error {
		cdidir.At(dir).Changes(cdidir.Watch{
			Renew: time.Hour, Concerns: func(fsnotify.Event) bool { return false },
			Warn: func(text string, err error) { warnings = append(warnings, text+": "+err.Error()) },
		}).Start()
		return nil
	}
	dir := t.TempDir()
	require.NoError(t, start(dir))
	require.Empty(t, warnings)
	require.NoError(t, start(filepath.Join(dir, "absent")))
	require.Len(t, warnings, 1)
	require.Regexp(t, "^the CDI directory is polled until it can be watched: .*no such file or directory$", warnings[0])
	warnings = nil
	require.NoError(t, contracttest.Failing(t, syscall.SYS_INOTIFY_INIT1, syscall.EMFILE, func(fail func()) error {
		fail()
		return start(dir)
	}))
	require.Len(t, warnings, 1)
	require.Regexp(t, "^the CDI directory is polled: .*too many open files$", warnings[0])
}

// TestPollReportsChangesOnly: a directory that is polled and does not change is quiet.
func TestPollReportsChangesOnly(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := changes(dir)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		defer running.Wait()
		defer cancel()
		<-c.C() // the first poll
		time.Sleep(10 * time.Second)
		requireNoChange(t, c)
		require.NoError(t, os.Chtimes(dir, time.Now(), time.Now()))
		<-c.C()
		time.Sleep(10 * time.Second)
		requireNoChange(t, c)
	})
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
