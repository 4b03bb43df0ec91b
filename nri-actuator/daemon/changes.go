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

// pollPeriod is how often the CDI directory is looked at where the kernel has no
// inotify instance left: there are few, and any program on the node can use
// them up.
const pollPeriod = time.Second

// changes reports what the frontend changes in the CDI directory: by inotify, or
// else by the directory's time of change, which moves on with every file that
// comes, goes or is replaced.
type changes struct {
	dir string
	// renew is how often a watch is made anew: the directory may have been
	// replaced.
	renew   time.Duration
	changed chan struct{}
	watcher *fsnotify.Watcher
}

func newChanges(dir string, renew time.Duration) *changes {
	return &changes{dir: dir, renew: renew, changed: make(chan struct{}, 1)}
}

// start begins to watch, so that no later change is missed, and goes on in run.
func (c *changes) start(ctx context.Context) {
	if c.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			logs.From(ctx).Warn("the CDI directory is polled", zap.Error(err))
			return
		}
		c.watcher = watcher
	}
	if err := c.watcher.Add(c.dir); err != nil {
		logs.From(ctx).Error("watch CDI directory", zap.Error(err))
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
			poll.Stop()
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
			// Events were lost; the files say what they said.
			logs.From(ctx).Warn("watch CDI directory", zap.Error(err))
			c.signal()
		case <-poll.C:
			if info, err := os.Stat(c.dir); err == nil && !info.ModTime().Equal(last) {
				last = info.ModTime()
				c.signal()
			}
		case <-renew.C:
			c.start(ctx)
			// What changed before was perhaps not watched.
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

// concerns reports whether an event changes what holds: the node file's do, and
// claims that go.
func concerns(event fsnotify.Event) bool {
	name := filepath.Base(event.Name)
	if name == contract.NodeFile {
		return !event.Has(fsnotify.Chmod)
	}
	_, claim := contract.ClaimUIDOfFile(name)
	return claim && event.Has(fsnotify.Remove|fsnotify.Rename)
}
