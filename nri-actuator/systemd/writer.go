// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Writer sets the properties of slices to the values in their cgroups. It never
// holds its lock during a call.
type Writer struct {
	connect func(context.Context) (Bus, error)
	failed  func(reason string)
	// wake makes Run look for new values.
	wake chan struct{}

	mu    sync.Mutex
	units map[string]*unit
	// calling is the unit of the call under way.
	calling string
}

// unit is the Writer's knowledge of a unit.
type unit struct {
	// want are the contents that the unit's files shall have. has are the
	// contents that systemd surely has as properties. Different contents are
	// pending.
	want, has map[string]string
	// news reports whether Set was called after the last call began.
	news bool
	// due orders the pending units, the earliest first. It is the time of the last
	// call; after a failure it is the earliest time of the next call, and wait is that
	// delay.
	wait time.Duration
	due  time.Time
}

// New returns a Writer. connect makes a connection when the Writer needs one,
// for example with [Dial]. failed is called for each failure, with
// [ReasonConnect], [ReasonSilent] or [ReasonRefused].
func New(connect func(context.Context) (Bus, error), failed func(reason string)) *Writer {
	return &Writer{connect: connect, failed: failed, wake: make(chan struct{}, 1), units: make(map[string]*unit)}
}

// Set notes the contents that files of the cgroup dir shall have, and does not
// wait. The newest value of a file holds. A value that systemd surely has is
// not sent again, except after Forget. Files without a property are ignored. An
// invalid value is an error, and nothing is noted.
func (w *Writer) Set(dir string, files map[string]string) error {
	name, ok := Unit(dir)
	if !ok {
		return nil
	}
	if _, err := Properties(files); err != nil {
		return fmt.Errorf("unit %s: %w", name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for file, content := range files {
		if property(file) == "" {
			continue
		}
		if w.units[name] == nil {
			w.units[name] = &unit{want: make(map[string]string), has: make(map[string]string)}
		}
		w.units[name].want[file] = content
		w.units[name].news = true
	}
	w.awaken()
	return nil
}

// UpToDate reports whether systemd surely has all values that were Set for the
// cgroup dir, and no call for it is under way. It is true if nothing was Set.
func (w *Writer) UpToDate(dir string) bool {
	name, ok := Unit(dir)
	if !ok {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.units[name]
	return w.calling != name && (u == nil || len(u.pending()) == 0)
}

// Forget drops all knowledge of the cgroup dir, unsent values included. If
// another program may have changed the unit, Forget and Set send all values
// again.
func (w *Writer) Forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, ok := Unit(dir); ok {
		// A call under way reports its result to the dropped entry.
		delete(w.units, name)
	}
}

// ForgetExcept forgets all units but the units of the cgroups dirs.
func (w *Writer) ForgetExcept(dirs []string) {
	keep := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		if name, ok := Unit(dir); ok {
			keep[name] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.units, func(name string, _ *unit) bool { return !keep[name] })
}

// Reset forgets which values systemd has, so that all values are sent again.
func (w *Writer) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, u := range w.units {
		w.units[name] = &unit{want: u.want, has: make(map[string]string)}
	}
	w.awaken()
}

func (w *Writer) awaken() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// pending returns the contents that systemd may lack.
func (u *unit) pending() map[string]string {
	files := make(map[string]string)
	for file, content := range u.want {
		if has, ok := u.has[file]; !ok || has != content {
			files[file] = content
		}
	}
	return files
}
