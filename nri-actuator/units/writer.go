// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Writer keeps the properties of slices at the values that were written into
// their cgroups. Its lock is never held over a call.
type Writer struct {
	connect func(context.Context) (Bus, error)
	failed  func(reason string)
	// wake makes Run look for what is new.
	wake chan struct{}

	mu    sync.Mutex
	units map[string]*unit
	// calling is the unit that a call is under way for.
	calling string
}

// unit is what is known of a unit.
type unit struct {
	// want are the contents its files shall have, has are those of them that
	// systemd has as properties for sure. What differs is pending.
	want, has map[string]string
	// news tells whether Set came after the last call was made.
	news bool
	// due is when the last call was or, after a failure, when the next is: wait
	// later.
	wait time.Duration
	due  time.Time
}

// New returns a Writer. connect is asked for a connection when something is to
// be sent and there is none; [Dial] makes one. failed is called for each
// failure, with one of the reasons below.
func New(connect func(context.Context) (Bus, error), failed func(reason string)) *Writer {
	return &Writer{connect: connect, failed: failed, wake: make(chan struct{}, 1), units: make(map[string]*unit)}
}

// Set notes the contents that files of the cgroup dir shall have. It does not
// wait for anything. Of several values for a file the newest holds; one that
// systemd is known to have is not sent again, but after a Forget. Files that
// are no property are left out. After an error nothing is noted.
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

// Settled tells whether systemd has all that was Set for the cgroup dir, and no
// call for it is under way. It has where nothing was.
func (w *Writer) Settled(dir string) bool {
	name, ok := Unit(dir)
	if !ok {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.units[name]
	return w.calling != name && (u == nil || len(u.pending()) == 0)
}

// Forget drops what is known of the cgroup dir, and what is not sent yet. After
// somebody else may have changed the unit, Forget and Set send all of it again.
func (w *Writer) Forget(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name, ok := Unit(dir); ok {
		// What a call under way will report is of the old one.
		delete(w.units, name)
	}
}

// Reset forgets what systemd has, so that everything is sent again.
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

// pending returns what systemd is yet to be told.
func (u *unit) pending() map[string]string {
	files := make(map[string]string)
	for file, content := range u.want {
		if has, ok := u.has[file]; !ok || has != content {
			files[file] = content
		}
	}
	return files
}
