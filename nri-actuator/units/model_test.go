// SPDX-License-Identifier: Apache-2.0

package units_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/units"
)

// files are the cgroup files by the property that stands for them.
var files = map[string]string{
	"AllowedCPUs": "cpuset.cpus", "AllowedMemoryNodes": "cpuset.mems",
	"MemoryMin": "memory.min", "MemoryLow": "memory.low", "MemoryHigh": "memory.high", "MemoryMax": "memory.max",
}

// systemd is a model of it: a queue of calls in the order they were made, which
// it executes when told to, whether the caller still waits or not. Setting a
// property writes all files of the controller.
type systemd struct {
	mu    sync.Mutex
	units map[string]*cgroup
	queue []*message
	// conn is the open connection; off refuses new ones.
	conn *fakeBus
	off  bool
	sent int
	// wrong is the first breach of the rule.
	wrong error
}

// cgroup is a unit's cgroup: what its files hold, what systemd's properties
// are, and what each file may hold after the last direct write.
type cgroup struct {
	files, properties map[string]string
	allowed           map[string]map[string]bool
	writing           bool
}

type message struct {
	unit  string
	files map[string]string
	done  chan error
}

// create makes a unit as the runtime does: files and properties agree.
func (s *systemd) create(name string, content map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &cgroup{files: maps.Clone(content), properties: maps.Clone(content), allowed: make(map[string]map[string]bool)}
	for file, v := range content {
		c.allowed[file] = map[string]bool{v: true}
	}
	if s.units == nil {
		s.units = make(map[string]*cgroup)
	}
	s.units[name] = c
}

// connect is what the Writer gets.
func (s *systemd) connect(context.Context) (units.Bus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off {
		return nil, errors.New("no bus here")
	}
	s.conn = &fakeBus{systemd: s, broken: make(chan struct{})}
	return s.conn, nil
}

type fakeBus struct {
	systemd *systemd
	once    sync.Once
	broken  chan struct{}
}

func (b *fakeBus) Close() error {
	b.once.Do(func() { close(b.broken) })
	return nil
}

func (b *fakeBus) SetUnitProperties(ctx context.Context, unit string, runtime bool, properties ...units.Property) error {
	m := &message{unit: unit, files: make(map[string]string), done: make(chan error, 1)}
	for _, p := range properties {
		m.files[files[p.Name]] = content(p)
	}
	s := b.systemd
	s.mu.Lock()
	select {
	case <-b.broken:
		s.mu.Unlock()
		return io.ErrClosedPipe
	default:
	}
	s.queue = append(s.queue, m)
	s.sent++
	if !runtime {
		s.breach("%s: properties would outlive a reboot", unit)
	}
	s.mu.Unlock()
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-b.broken:
		return io.EOF
	}
}

// content is what systemd writes into the file for a property.
func content(p units.Property) string {
	switch v := p.Value.Value().(type) {
	case []byte:
		return contract.FormatList(bits(v))
	case uint64:
		if v != math.MaxUint64 {
			return strconv.FormatUint(v, 10)
		}
	}
	return "max"
}

// step executes the oldest call, or refuses it.
func (s *systemd) step(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return
	}
	m := s.queue[0]
	s.queue = s.queue[1:]
	c := s.units[m.unit]
	switch {
	case c == nil:
		m.done <- dbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit", Body: []any{"not loaded"}}
		return
	case refuse:
		m.done <- dbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs", Body: []any{"no"}}
		return
	case c.writing && len(m.files) > 0:
		s.breach("%s: call executed during a direct write", m.unit)
	}
	controllers := make(map[string]bool)
	for file, v := range m.files {
		c.properties[file] = v
		controllers[strings.SplitN(file, ".", 2)[0]] = true
	}
	for file, v := range c.properties {
		if !controllers[strings.SplitN(file, ".", 2)[0]] {
			continue
		}
		c.files[file] = v
		if !c.allowed[file][v] {
			s.breach("%s: systemd wrote %q to %s after the last direct write, allowed %v", m.unit, v, file, c.allowed[file])
		}
	}
	m.done <- nil
}

// begin and end are around a direct write.
func (s *systemd) begin(unit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.queue {
		if m.unit == unit && len(m.files) > 0 {
			s.breach("%s: direct write while %v is to be executed", unit, m.files)
		}
	}
	if s.units[unit].writing {
		s.breach("%s: two direct writes at a time", unit)
	}
	s.units[unit].writing = true
}

// end writes content, but those files for which fail is true.
func (s *systemd) end(unit string, content map[string]string, fail map[string]bool) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.units[unit]
	c.writing = false
	for file, v := range content {
		if fail[file] {
			c.allowed[file][v] = true
			continue
		}
		if c.files[file] != v {
			changed = append(changed, file)
		}
		c.files[file] = v
		c.allowed[file] = map[string]bool{v: true}
	}
	return changed
}

// foreign changes file and property as another client of systemd would.
func (s *systemd) foreign(unit, file, v string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.units[unit]
	c.files[file], c.properties[file] = v, v
	c.allowed[file][v] = true
}

// allow lets files hold what was asked for without a direct write.
func (s *systemd) allow(unit string, content map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for file, v := range content {
		if allowed := s.units[unit].allowed[file]; allowed != nil {
			allowed[v] = true
		}
	}
}

func (s *systemd) breach(format string, args ...any) {
	if s.wrong == nil {
		s.wrong = fmt.Errorf(format, args...)
	}
}

func (s *systemd) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *systemd) waiting() (n int) {
	s.locked(func() { n = len(s.queue) })
	return n
}
