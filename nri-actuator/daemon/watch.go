// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/durable"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/announcement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/hooks"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// watch applies the node state when the frontend changes it, and repairs what
// others changed at every refresh.
func (d *Daemon) watch(ctx context.Context, plugin *hooks.Plugin, held *announcement.Announcement) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch CDI directory: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(d.config.CDIDir); err != nil {
		return fmt.Errorf("watch CDI directory %s: %w", d.config.CDIDir, err)
	}
	// What was written before is no event, and the synchronisation may have been
	// before that.
	if err := plugin.Apply(ctx); err != nil {
		logs.From(ctx).Error("apply node state", zap.Error(err))
	}
	refresh := time.NewTicker(d.config.RefreshInterval)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if !concerns(event) {
				continue
			}
		case err := <-watcher.Errors:
			// Events were lost; the files tell what they said.
			logs.From(ctx).Warn("watch CDI directory", zap.Error(err))
		case <-refresh.C:
			// The directory, or the announcement in it, may have been removed
			// and come back.
			if err := durable.CheckDir(d.config.CDIDir); errors.Is(err, durable.ErrReplaced) {
				return err
			}
			if err := watcher.Add(d.config.CDIDir); err != nil {
				logs.From(ctx).Error("watch CDI directory", zap.Error(err))
			}
			if err := held.Set(func(*contract.Announcement) {}); err != nil {
				logs.From(ctx).Error("announcement", zap.Error(err))
			}
		}
		if err := plugin.Apply(ctx); err != nil {
			logs.From(ctx).Error("apply node state", zap.Error(err))
		}
	}
}

// concerns tells whether an event changes what holds: the node file's do, and
// claims that go.
func concerns(event fsnotify.Event) bool {
	name := filepath.Base(event.Name)
	if name == contract.NodeFile {
		return !event.Has(fsnotify.Chmod)
	}
	_, claim := contract.ClaimUIDOfFile(name)
	return claim && event.Has(fsnotify.Remove|fsnotify.Rename)
}
