// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/godbus/dbus/v5"
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
	name  string
	unit  *unit
	files map[string]string
}

// Run sends pending values, one call at a time, until ctx ends. systemd may
// execute an unanswered call late, and Run makes the call again. The newest
// values hold in the end: systemd executes later calls later, and each call has
// the newest of all values that systemd may lack.
func (w *Writer) Run(ctx context.Context) {
	var bus Bus
	defer func() {
		if bus != nil {
			bus.Close()
		}
	}()
	last := ""
	for ctx.Err() == nil {
		c, wait := w.nextCall()
		if c == nil {
			w.sleep(ctx, wait)
			continue
		}
		var reason string
		var err error
		bus, reason, err = w.send(ctx, bus, c)
		w.finish(c, reason, err)
		if ctx.Err() != nil {
			// A call that the actuator's end cut off is no failure.
			return
		}
		if reason != "" {
			w.failed(reason)
		}
		switch {
		case reason == last:
		case reason == "":
			logs.From(ctx).Info("systemd takes the properties of units again")
		default:
			logs.From(ctx).Warn("systemd did not get the values of a unit and may restore former values",
				zap.String("unit", c.name), zap.String("reason", reason), zap.Error(err))
		}
		last = reason
	}
}

// nextCall returns the call to make, for the unit that is due first. Without a call
// it returns nil and how long to wait.
func (w *Writer) nextCall() (*call, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var next *call
	for name, u := range w.units {
		if files := u.pending(); len(files) > 0 && (next == nil || u.due.Before(next.unit.due)) {
			next = &call{name: name, unit: u, files: files}
		}
	}
	if next == nil {
		return nil, maxRetry
	}
	if wait := time.Until(next.unit.due); wait > 0 {
		return nil, wait
	}
	for file := range next.files {
		delete(next.unit.has, file)
	}
	next.unit.news, next.unit.due = false, time.Now()
	w.calling = next.name
	return next, 0
}

// send makes the call and returns the connection for the next call. reason is
// set if the call must be made again.
func (w *Writer) send(ctx context.Context, bus Bus, c *call) (_ Bus, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if bus == nil {
		if bus, err = w.connect(ctx); err != nil {
			return nil, ReasonConnect, err
		}
	}
	// Set has checked the values.
	properties, _ := Properties(c.files)
	err = bus.SetUnitProperties(ctx, c.name, true, properties...)
	var answer dbus.Error
	switch {
	case err == nil:
	case errors.As(err, &answer):
		if answer.Name != noSuchUnit {
			reason = ReasonRefused
		}
	case errors.Is(err, context.DeadlineExceeded):
		// systemd may only be slow: on this connection it executes the next call
		// after this call.
		reason = ReasonSilent
	default:
		// The bus reads the rest of this connection before it accepts a new one.
		bus.Close()
		bus, reason = nil, ReasonSilent
	}
	return bus, reason, err
}

// finish notes the result of a call.
func (w *Writer) finish(c *call, reason string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calling = ""
	u := c.unit
	switch {
	case reason != "":
		u.wait = min(max(2*u.wait, minRetry), maxRetry)
		u.due = time.Now().Add(u.wait)
	case err == nil:
		maps.Copy(u.has, c.files)
		u.wait = 0
	case u.news:
		// There was no such unit, but it may have been made since.
		clear(u.has)
	case w.units[c.name] == u:
		delete(w.units, c.name)
	}
}

// sleep waits for new values, at most d.
func (w *Writer) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.wake:
	case <-ctx.Done():
	}
}
