// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// pollPeriod is how often the CDI directory is polled if the kernel has no
// inotify instance left. The kernel has few, and any program on the node can use
// them up.
const pollPeriod = time.Second

// changes reports the frontend's changes in the CDI directory. It uses inotify,
// or else the directory's modification time, which changes with each file that
// is created, removed or replaced.
type changes struct {
	dir string
	// renew is how often the watch is set again: the directory may have been
	// replaced.
	renew   time.Duration
	changed chan struct{}
	watcher *fsnotify.Watcher
	// watching reports whether the watch is set.
	watching bool
}

func newChanges(dir string, renew time.Duration) *changes {
	return &changes{dir: dir, renew: renew, changed: make(chan struct{}, 1)}
}

// start sets the watch, so that run misses no later change.
func (c *changes) start(ctx context.Context) {
	if c.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			logs.From(ctx).Warn("the CDI directory is polled", zap.Error(err))
			return
		}
		c.watcher = watcher
	}
	err := c.watcher.Add(c.dir)
	if c.watching = err == nil; err != nil {
		logs.From(ctx).Error("the CDI directory is polled until it can be watched", zap.Error(err))
	}
}

// run reports changes until ctx ends.
func (c *changes) run(ctx context.Context) {
	poll, renew := time.NewTicker(pollPeriod), time.NewTicker(c.renew)
	defer poll.Stop()
	defer renew.Stop()
	var last time.Time
	for {
		var events <-chan fsnotify.Event
		var lost <-chan error
		if c.watcher != nil {
			events, lost = c.watcher.Events, c.watcher.Errors
		}
		select {
		case <-ctx.Done():
			if c.watcher != nil {
				c.watcher.Close()
			}
			return
		case event := <-events:
			if concerns(event) {
				c.signal()
			}
		case err := <-lost:
			// Events were lost. The files have the state.
			logs.From(ctx).Warn("watch CDI directory", zap.Error(err))
			c.signal()
		case <-poll.C:
			if c.watching {
				continue
			}
			if info, err := os.Stat(c.dir); err == nil && !info.ModTime().Equal(last) {
				last = info.ModTime()
				c.signal()
			}
		case <-renew.C:
			c.start(ctx)
			// The old watch may have missed changes.
			c.signal()
		}
	}
}

func (c *changes) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// concerns reports whether the actuator must act on an event: the node file
// changed, or a claim file was removed.
func concerns(event fsnotify.Event) bool {
	name := filepath.Base(event.Name)
	if name == contract.NodeFile {
		return !event.Has(fsnotify.Chmod)
	}
	_, claim := contract.ClaimUIDOfFile(name)
	return claim && event.Has(fsnotify.Remove|fsnotify.Rename)
}
