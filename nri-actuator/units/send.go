// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// Reasons of a failure, a closed list.
const (
	ReasonConnect = "connect" // no connection to the system bus
	ReasonSilent  = "silent"  // systemd did not answer
	ReasonRefused = "refused" // systemd refused the properties
)

const (
	callTimeout = 5 * time.Second
	minRetry    = 100 * time.Millisecond
	maxRetry    = 30 * time.Second
)

// call is one call for a unit.
type call struct {
	name string
	unit *unit
	// files are sent; has is where to note that systemd has them.
	files, has map[string]string
}

// Run sends what is pending, one call at a time, until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	var bus Bus
	defer func() {
		if bus != nil {
			bus.Close()
		}
	}()
	var retry time.Duration
	for w.work(ctx) {
		if bus == nil {
			var err error
			if bus, err = w.open(ctx); err != nil {
				w.report(ctx, ReasonConnect, "", err)
				retry = backOff(retry)
				sleep(ctx, retry)
				continue
			}
		}
		c, ok := w.take()
		if !ok {
			continue
		}
		// Properties were checked when they were noted.
		properties, _ := Properties(c.files)
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		err := bus.SetUnitProperties(callCtx, c.name, true, properties...)
		cancel()
		if w.finish(ctx, c, err) {
			retry = 0
			continue
		}
		// A connection that is only slow is kept: what comes next on it comes
		// after the lost call, and its answer ends the doubt.
		if !errors.Is(err, context.DeadlineExceeded) {
			bus.Close()
			bus = nil
		}
		retry = backOff(retry)
		sleep(ctx, retry)
	}
}

// open connects.
func (w *Writer) open(ctx context.Context) (Bus, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return w.connect(ctx)
}

// work waits until something is due, and tells whether that came before the end
// of ctx.
func (w *Writer) work(ctx context.Context) bool {
	for ctx.Err() == nil {
		w.mu.Lock()
		_, u := w.first()
		changed := w.changed
		var wait time.Duration
		if u != nil {
			wait = time.Until(u.due)
		}
		w.mu.Unlock()
		switch {
		case u == nil:
			select {
			case <-changed:
			case <-ctx.Done():
			}
		case u.doubt || wait <= 0:
			return true
		default:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-changed:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
	return false
}

// first returns the unit that is the next to have a call: one in doubt, or that
// which is due first of those that have something pending and may be called.
func (w *Writer) first() (name string, first *unit) {
	for n, u := range w.units {
		if u.doubt {
			return n, u
		}
		if u.busy != "" || u.writes > 0 || len(u.pending()) == 0 {
			continue
		}
		if first == nil || u.due.Before(first.due) {
			name, first = n, u
		}
	}
	return name, first
}

// take returns the call to make now. For a unit in doubt it sets nothing, and
// its answer says that whatever was sent before is over.
func (w *Writer) take() (call, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, u := w.first()
	if u == nil || !u.doubt && u.due.After(time.Now()) {
		return call{}, false
	}
	c := call{name: name, unit: u, has: u.has}
	if u.doubt {
		return c, true
	}
	c.files = u.pending()
	u.busy, u.since = calling, time.Now()
	for file := range c.files {
		delete(u.has, file)
	}
	return c, true
}

// finish notes how a call ended, and tells whether that is over: a call without
// an answer may be executed still, and leaves its unit in doubt and busy.
func (w *Writer) finish(ctx context.Context, c call, err error) (over bool) {
	reason := w.note(c, err)
	// What the end of the actuator cut off is no failure.
	if ctx.Err() == nil {
		w.report(ctx, reason, c.name, err)
	}
	return reason != ReasonSilent
}

func (w *Writer) note(c call, err error) (reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := c.unit
	defer func() { w.ended(c.name, u) }()
	if silent(err) || u.doubt && !fromSystemd(err) {
		u.doubt = true
		return ReasonSilent
	}
	u.busy = ""
	if fromSystemd(err) {
		// It takes calls in order: those that were made before are over too.
		for _, other := range w.units {
			if other.doubt {
				other.doubt, other.busy = false, ""
			}
		}
	}
	switch {
	case err == nil:
		maps.Copy(c.has, c.files)
		u.wait = 0
	case gone(err):
		u.forget()
	default:
		u.wait = backOff(u.wait)
		u.due = time.Now().Add(u.wait)
		return ReasonRefused
	}
	return ""
}

// report counts a failure, and logs what went wrong when that changes. No
// reason means that all is well with the unit.
func (w *Writer) report(ctx context.Context, reason, name string, err error) {
	problem := ""
	if reason != "" {
		w.failed(reason)
		problem = explain(err)
	}
	w.mu.Lock()
	changed := problem != w.problem && (problem != "" || !w.troubled())
	if changed {
		w.problem = problem
	}
	w.mu.Unlock()
	switch {
	case !changed:
	case problem == "":
		logs.From(ctx).Info("systemd takes the properties of units again")
	default:
		logs.From(ctx).Warn("systemd could not be told the values of a unit: until it is, a reload of systemd brings old ones back",
			zap.String("unit", name), zap.String("problem", problem))
	}
}

// troubled tells whether a unit had a failure that is not over.
func (w *Writer) troubled() bool {
	for _, u := range w.units {
		if u.doubt || u.wait > 0 {
			return true
		}
	}
	return false
}

func backOff(wait time.Duration) time.Duration { return min(max(2*wait, minRetry), maxRetry) }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
