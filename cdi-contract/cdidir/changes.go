// SPDX-License-Identifier: Apache-2.0

package cdidir

import (
	"context"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollPeriod is how often the directory is polled if the kernel has no inotify
// instance left. The kernel has few, and any program on the node can use them up.
const pollPeriod = time.Second

// Watch is what a reader wants to know of the directory's changes. All fields are
// required.
type Watch struct {
	// Renew is how often the watch is set again: the directory may have been
	// replaced.
	Renew time.Duration
	// Concerns reports whether the reader must act on an event.
	Concerns func(fsnotify.Event) bool
	// Warn gets what is wrong with the watch. Changes are found later then.
	Warn func(text string, err error)
}

// Changes reports changes of the directory. It uses inotify, or else the directory's
// modification time, which changes with each file that is created, removed or
// replaced.
type Changes struct {
	Watch
	dir     string
	changed chan struct{}
	watcher *fsnotify.Watcher
	// watching reports whether the watch is set.
	watching bool
}

// Changes returns the changes of the directory from [Changes.Start] on.
func (d Dir) Changes(w Watch) *Changes {
	return &Changes{Watch: w, dir: d.path, changed: make(chan struct{}, 1)}
}

// C returns the channel that receives after a change. Changes before the receiver
// takes the value share it.
func (c *Changes) C() <-chan struct{} { return c.changed }

// Start sets the watch, so that Run misses no later change.
func (c *Changes) Start() {
	if c.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			c.Warn("the CDI directory is polled", err)
			return
		}
		c.watcher = watcher
	}
	err := c.watcher.Add(c.dir)
	if c.watching = err == nil; err != nil {
		c.Warn("the CDI directory is polled until it can be watched", err)
	}
}

// Run reports changes until ctx ends.
func (c *Changes) Run(ctx context.Context) {
	poll, renew := time.NewTicker(pollPeriod), time.NewTicker(c.Renew)
	defer poll.Stop()
	defer renew.Stop()
	var last time.Time
	for {
		var events <-chan fsnotify.Event
		var lost <-chan error
		if c.watcher != nil {
			events, lost = c.watcher.Events, c.watcher.Errors
		}
		due := poll.C
		if c.watching {
			due = nil // a ticker without a receiver wakes no thread up
		}
		select {
		case <-ctx.Done():
			if c.watcher != nil {
				c.watcher.Close()
			}
			return
		case event := <-events:
			if event.Name == c.dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				// The watch has ended with the directory.
				c.watching = false
			}
			if c.Concerns(event) {
				c.signal()
			}
		case err := <-lost:
			// Events were lost. The files have the state.
			c.Warn("watch of the CDI directory", err)
			c.signal()
		case <-due:
			if info, err := os.Stat(c.dir); err == nil && !info.ModTime().Equal(last) {
				last = info.ModTime()
				c.signal()
			}
		case <-renew.C:
			was := c.watching
			c.Start()
			if !was {
				c.signal() // changes before the watch are unknown
			}
		}
	}
}

func (c *Changes) signal() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
