// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Writer keeps the properties of units at the values that were written into
// their cgroups. Its lock is never held over a call or a write.
type Writer struct {
	connect func(context.Context) (Bus, error)
	failed  func(reason string)

	mu    sync.Mutex
	units map[string]*unit
	// changed is closed and replaced whenever somebody may wait for what changed.
	changed chan struct{}
	// problem is what went wrong last.
	problem string
}

// unit is what is known of a unit.
type unit struct {
	// want are the contents its files shall have, has are those of want that
	// systemd has as properties for sure. What differs is pending.
	want, has map[string]string
	// busy says why nobody else may write or call now; empty when they may. A
	// call that was not answered keeps the unit busy: systemd may execute it
	// still, which would undo a later direct write (I1).
	busy  string
	since time.Time
	// doubt means that the call is over, but not whether it is executed.
	doubt bool
	// writes counts those who write or wait to: no call starts before them.
	writes int
	// due is when what is pending is sent, wait the time between tries after a
	// refusal.
	due  time.Time
	wait time.Duration
}

const (
	calling = "systemd has not answered"
	writing = "another write to it has not ended"
)

// New returns a Writer. connect is asked for a connection when something is to
// be sent and there is none; [Dial] makes one. failed is called for each
// failure, with one of the reasons below.
func New(connect func(context.Context) (Bus, error), failed func(reason string)) *Writer {
	return &Writer{connect: connect, failed: failed, units: make(map[string]*unit), changed: make(chan struct{})}
}

// Set notes the contents that files of the cgroup dir shall have. It does not
// wait for anything. Of several values for a file the newest holds. Files that
// systemd has no property for are left out. After an error nothing is noted.
func (w *Writer) Set(dir string, files map[string]string) error {
	name, files, err := lookUp(dir, files)
	if err != nil || len(files) == 0 {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.unit(name)
	u.note(files)
	w.ended(name, u)
	return nil
}

// Write runs direct, which writes the files of the cgroup dir and returns those
// it changed, and gives the same contents to the unit. No call for the unit is
// under way while direct runs, and none with an older content is ever executed
// after it (I1). For that it waits for an unanswered call, until ctx ends: then
// it returns an error and has written nothing.
//
// A file that direct changed though systemd should have its content was changed
// by somebody else, who may have set the property too: it is sent again. After
// an error of direct the contents are still what the unit shall have.
func (w *Writer) Write(ctx context.Context, dir string, files map[string]string, direct func() (changed []string, err error)) (changed []string, err error) {
	name, files, err := lookUp(dir, files)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return direct()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.unit(name)
	u.writes++
	defer func() {
		u.writes--
		w.ended(name, u)
	}()
	if err := w.await(ctx, func() bool { return u.busy == "" }); err != nil {
		return nil, fmt.Errorf("unit %s: %s for %s, it is busy: nothing was written, this is tried again: %w",
			name, u.busy, time.Since(u.since).Round(time.Millisecond), err)
	}
	u.busy, u.since = writing, time.Now()
	defer func() {
		u.busy = ""
		for _, file := range changed {
			delete(u.has, file)
		}
		if err != nil {
			for file := range files {
				delete(u.has, file)
			}
		}
		u.note(files)
	}()
	w.mu.Unlock()
	defer w.mu.Lock()
	return direct()
}

// Settle waits until systemd has all that was given for the unit of dir, and no
// call for it is under way.
func (w *Writer) Settle(ctx context.Context, dir string) error {
	name, ok := Unit(dir)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// The unit is looked up each time: one that is forgotten is another later.
	settled := func() bool {
		u := w.units[name]
		return u == nil || u.busy == "" && len(u.pending()) == 0
	}
	if err := w.await(ctx, settled); err != nil {
		problem := w.problem
		if u := w.units[name]; problem == "" && u != nil {
			problem = u.busy
		}
		return fmt.Errorf("unit %s: systemd has not all of its values: %s: %w", name, problem, err)
	}
	return nil
}

// Forget drops all that is known of the unit of dir, and what is not sent yet.
func (w *Writer) Forget(dir string) {
	name, ok := Unit(dir)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if u := w.units[name]; u != nil {
		u.forget()
		w.ended(name, u)
	}
}

// Reset forgets what systemd has, so that everything is sent again.
func (w *Writer) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, u := range w.units {
		// A new map: what a call under way will report is of before.
		u.has = make(map[string]string)
		u.due, u.wait = time.Now(), 0
		w.ended(name, u)
	}
}

// lookUp finds the unit and those of the files that are properties of it.
func lookUp(dir string, files map[string]string) (name string, known map[string]string, err error) {
	name, ok := Unit(dir)
	if !ok {
		return "", nil, nil
	}
	if _, err := Properties(files); err != nil {
		return "", nil, fmt.Errorf("unit %s: %w", name, err)
	}
	known = maps.Clone(files)
	maps.DeleteFunc(known, func(file, _ string) bool {
		property, _ := property(file)
		return property == ""
	})
	return name, known, nil
}

// unit returns the unit, a new one where it is not known.
func (w *Writer) unit(name string) *unit {
	u := w.units[name]
	if u == nil {
		u = new(unit)
		u.forget()
		w.units[name] = u
	}
	return u
}

// ended drops a unit with which there is nothing left to do, and wakes those
// who wait.
func (w *Writer) ended(name string, u *unit) {
	if u.busy == "" && u.writes == 0 && len(u.want) == 0 {
		delete(w.units, name)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// await returns when the condition holds, or with an error when ctx ends. The
// lock is held but while waiting.
func (w *Writer) await(ctx context.Context, condition func() bool) error {
	for !condition() {
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if err := ctx.Err(); err != nil && !condition() {
			return err
		}
	}
	return nil
}

func (u *unit) forget() {
	u.want, u.has = make(map[string]string), make(map[string]string)
	u.wait = 0
}

// note makes the contents those the unit shall have.
func (u *unit) note(files map[string]string) {
	news := len(u.pending()) == 0
	for file, content := range files {
		news = news || u.want[file] != content
		u.want[file] = content
	}
	if news {
		u.due = time.Now()
	}
}

// pending returns what systemd is yet to be told.
func (u *unit) pending() map[string]string {
	var files map[string]string
	for file, content := range u.want {
		if has, ok := u.has[file]; ok && has == content {
			continue
		}
		if files == nil {
			files = make(map[string]string)
		}
		files[file] = content
	}
	return files
}
