// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
)

// maxError bounds the error about all cgroups in a line of the log, in bytes.
const maxError = 2000

// watch applies the node state when the frontend changes it, and repairs drift
// at each refresh.
func (d *Daemon) watch(ctx context.Context, plugin *nri.Plugin, changed <-chan struct{}) error {
	refresh := time.NewTicker(d.config.RefreshInterval)
	defer refresh.Stop()
	for {
		do, what := plugin.Apply, "apply node state"
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-plugin.Due():
			do, what = plugin.CatchUp, "catch up"
		case <-refresh.C:
			// The directory may have been removed and made again.
			if err := atomicfile.CheckDir(d.config.CDIDir); errors.Is(err, atomicfile.ErrReplaced) {
				return err
			}
			do, what = plugin.Refresh, "refresh"
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			// Each part has a line of its own.
			logs.From(ctx).Error(what, zap.String("error", contract.Excerpt(strings.ReplaceAll(err.Error(), "\n", "; "), maxError)))
		}
	}
}

// announcePeriod is how soon the announcement says that a write does not
// return, and how soon a failed announcement is written again.
const announcePeriod = time.Second

// keepAnnounced keeps the announcement true while other goroutines wait for the
// kernel.
func (d *Daemon) keepAnnounced(ctx context.Context, plugin *nri.Plugin) {
	period := time.NewTicker(announcePeriod)
	defer period.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-period.C:
			plugin.Announce(ctx)
		}
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
