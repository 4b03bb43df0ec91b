// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// watch watches the CDI directory. Each refresh calls it again, because a watch
// ends with its directory and the directory may be made anew. Without a watch
// the refresh finds changes later.
func (d *Daemon) watch(w *fsnotify.Watcher) {
	if err := w.Add(d.o.Config.CDIDir); err != nil {
		d.o.Log.Error("CDI directory not watched", zap.Error(err))
	}
}

// signals returns a channel that signals changes. Changes that come before the
// reader takes the signal share it.
func signals(w *fsnotify.Watcher) <-chan struct{} {
	changes := make(chan struct{}, 1)
	go func() {
		for {
			// An error means a queue overflow, thus changes.
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

// concerns reports whether an event needs a look at all claims. Of the node
// file only the removal does: this instance writes it. An announcement does
// not: the actuator announces each node state of this instance, and the poll
// reads the announcement.
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
