// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// watch watches the CDI directory. It is asked again with each refresh, as a
// directory that was removed and made anew is another one; without a watch the
// refresh finds what changed, later.
func (d *Daemon) watch(w *fsnotify.Watcher) {
	if err := w.Add(d.o.Config.CDIDir); err != nil {
		d.o.Log.Error("CDI directory not watched", zap.Error(err))
	}
}

// signals tells of changes; several within a moment are one.
func signals(w *fsnotify.Watcher) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go func() {
		for {
			// An error is an overflow of the queue: something changed.
			select {
			case e, open := <-w.Events:
				if !open {
					return
				}
				if !concerns(e) {
					continue
				}
			case _, open := <-w.Errors:
				if !open {
					return
				}
			}
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes
}

// concerns reports whether an event is of interest. The node file is written by
// this instance, and its removal is another matter. The actuator announces each
// node state that it has applied: a look at all claims for each of them would
// answer what this instance wrote itself, and the poll sees the announcement.
func concerns(e fsnotify.Event) bool {
	name := filepath.Base(e.Name)
	switch name {
	case contract.NodeFile:
		return e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	case contract.ActuatorFile:
		return false
	}
	return name[0] != '.'
}
