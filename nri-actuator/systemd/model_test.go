// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// systemd is a model of systemd: a queue of calls in the order in which they
// were made. Each step executes a call, whether or not the caller waits. A call
// for one property writes all properties of the unit.
type model struct {
	mu    sync.Mutex
	units map[string]*slice
	queue []*message
	// conn is the open connection. off refuses new connections.
	conn *connection
	off  bool
	sent int
}

// slice is a unit: its properties, by file, and the contents of its files.
type slice struct{ properties, files map[string]string }

type message struct {
	unit  string
	files map[string]string
	done  chan error
	// waiting reports whether the caller waits.
	waiting bool
}

type connection struct {
	*model
	close  func()
	closed <-chan struct{}
}

func (s *model) create(unit string) {
	s.units[unit] = &slice{properties: make(map[string]string), files: make(map[string]string)}
}

// connect returns the Writer's connection.
func (s *model) connect(context.Context) (systemd.Bus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil, errors.New("no bus here")
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.conn = &connection{model: s, close: cancel, closed: ctx.Done()}
	return s.conn, nil
}

func (c *connection) Close() error {
	c.close()
	return nil
}

func (c *connection) SetUnitProperties(ctx context.Context, unit string, runtime bool, properties ...systemd.Property) error {
	m := &message{unit: unit, files: make(map[string]string), done: make(chan error, 1), waiting: true}
	for _, p := range properties {
		m.files[map[string]string{"MemoryMin": "memory.min", "MemoryLow": "memory.low"}[p.Name]] =
			strconv.FormatUint(p.Value.Value().(uint64), 10)
	}
	c.locked(func() {
		if runtime && len(m.files) > 0 {
			c.queue = append(c.queue, m)
			c.sent++
		}
	})
	defer c.locked(func() { m.waiting = false })
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.EOF
	}
}

// step executes the oldest call, or refuses it.
func (s *model) step(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	u := s.units[m.unit]
	switch {
	case refuse:
		m.done <- dbus.Error{Name: "org.freedesktop.DBus.Error.AccessDenied"}
	case u == nil:
		m.done <- dbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	default:
		maps.Copy(u.properties, m.files)
		maps.Copy(u.files, u.properties)
		m.done <- nil
	}
}

func (s *model) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// tb hides that it is a *testing.T: a bubble allows no call of its Deadline.
type tb struct{ rapid.TB }

// Whatever the bus does, a unit is up to date only while its properties and files
// have the newest values and no call is under way. In the end each unit is
// UpToDate. Values that systemd has are not sent again.
func TestNewestValueHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(tb{t}, func(t *rapid.T) {
			s := &model{units: make(map[string]*slice)}
			w, stop := start(t.Context(), s, func(string) {})
			defer stop()
			names := []string{"a.slice", "b.slice"}
			want := make(map[string]map[string]string)
			create := func(name string) {
				s.locked(func() { s.create(name) })
				want[name] = make(map[string]string)
			}
			for _, name := range names {
				create(name)
			}
			set := func(name string, files map[string]string) {
				s.locked(func() { maps.Copy(s.units[name].files, files) })
				maps.Copy(want[name], files)
				require.NoError(t, w.Set(name, files))
			}
			check := func(end bool) {
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, name := range names {
					settled := w.UpToDate(name)
					require.True(t, settled || !end, "%s settles", name)
					for _, m := range s.queue {
						require.False(t, settled && m.unit == name && (m.waiting || len(want[name]) > 0),
							"%s: %v is to be executed", name, m.files)
					}
					for file, v := range want[name] {
						require.True(t, !settled || s.units[name].properties[file] == v && s.units[name].files[file] == v,
							"%s: %s of %+v", name, file, s.units[name])
					}
				}
			}
			unit := rapid.SampledFrom(names)
			content := rapid.SampledFrom([]string{"1", "2", "3"})
			t.Repeat(map[string]func(*rapid.T){
				"": func(*rapid.T) { check(false) },
				"set": func(t *rapid.T) {
					set(unit.Draw(t, "unit"),
						rapid.MapOfN(rapid.SampledFrom([]string{"memory.min", "memory.low"}), content, 1, 2).Draw(t, "files"))
				},
				"execute": func(t *rapid.T) { s.step(rapid.IntRange(0, 3).Draw(t, "refuse") == 0) },
				"lose": func(*rapid.T) {
					if s.conn != nil {
						s.conn.Close()
					}
				},
				"off":   func(*rapid.T) { s.locked(func() { s.off = !s.off }) },
				"reset": func(*rapid.T) { w.Reset() },
				"time": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{
						50 * time.Millisecond, 700 * time.Millisecond, 6 * time.Second, 40 * time.Second,
					}).Draw(t, "time"))
				},
				"foreign": func(t *rapid.T) {
					name := unit.Draw(t, "unit")
					s.locked(func() { s.units[name].properties["memory.low"], s.units[name].files["memory.low"] = "7", "7" })
					w.Forget(name)
					set(name, want[name])
				},
				"forget": func(t *rapid.T) {
					name := unit.Draw(t, "unit")
					w.Forget(name)
					clear(want[name])
				},
				"replace": func(t *rapid.T) {
					name := unit.Draw(t, "unit")
					s.locked(func() { delete(s.units, name) })
					s.step(false)
					create(name)
					w.Forget(name)
				},
			})
			s.locked(func() { s.off = false })
			for range 100 {
				time.Sleep(time.Second)
				s.step(false)
			}
			check(true)
			sent := s.sent
			for _, name := range names {
				set(name, want[name])
			}
			check(true)
			require.Equal(t, sent, s.sent, "what systemd has is not sent again")
		})
	})
}

// start runs a Writer. stop ends it and waits for its end.
func start(ctx context.Context, s *model, failed func(string)) (w *systemd.Writer, stop func()) {
	w = systemd.New(s.connect, failed)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	return w, func() {
		cancel()
		<-ended
	}
}
