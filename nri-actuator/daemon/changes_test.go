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
