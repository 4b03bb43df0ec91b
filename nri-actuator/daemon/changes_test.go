// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestChangesWithoutInotify: the directory is polled if the kernel has no inotify
// instance left.
func TestChangesWithoutInotify(t *testing.T) {
	dir := t.TempDir()
	c := newChanges(dir, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	defer running.Wait()
	defer cancel()
	<-c.changed // the first poll
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	<-c.changed
}

// TestChangesWithoutAWatch: the directory is polled while it cannot be watched.
func TestChangesWithoutAWatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	c := newChanges(dir, time.Hour)
	c.start(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	defer running.Wait()
	defer cancel()
	require.NoError(t, os.Mkdir(dir, 0o755))
	<-c.changed
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	<-c.changed
}
