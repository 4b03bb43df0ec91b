// SPDX-License-Identifier: Apache-2.0

package units_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/units"
)

// tb hides that it is a *testing.T, whose deadline a bubble has not.
type tb struct{ rapid.TB }

// No older content reaches a file after a direct write (I1), whatever the bus
// does, and in the end files, properties and what was asked for agree.
func TestNothingOldIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(tb{t}, func(t *rapid.T) {
			h := newHistory()
			defer h.stop()
			t.Repeat(map[string]func(*rapid.T){
				"":          func(t *rapid.T) { h.check(t) },
				"write":     h.write,
				"set":       h.set,
				"execute":   func(*rapid.T) { h.systemd.step(false) },
				"execute 2": func(*rapid.T) { h.systemd.step(false) },
				"refuse":    func(*rapid.T) { h.systemd.step(true) },
				"lose":      func(*rapid.T) { h.lose() },
				"off":       func(*rapid.T) { h.systemd.locked(func() { h.systemd.off = !h.systemd.off }) },
				"time": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 700 * time.Millisecond, 6 * time.Second, 40 * time.Second}).Draw(t, "time"))
				},
				"reset": func(*rapid.T) {
					h.systemd.locked(func() { clear(h.theirs) })
					h.writer.Reset()
				},
				"foreign": h.foreign,
				"replace": h.replace,
			})
			h.finish(t)
		})
	})
}

// history is a run of the Writer against the model.
type history struct {
	systemd *systemd
	writer  *units.Writer
	stop    func()
	names   []string
	made    int
	// want is what was asked for last; busy are the units with a Write that has
	// not returned, slow those whose direct write waits to be released.
	want map[string]map[string]string
	// theirs are the files that others changed last.
	theirs map[[2]string]bool
	busy   map[string]bool
	slow   map[string]chan struct{}
}

func newHistory() *history {
	h := &history{systemd: new(systemd), want: make(map[string]map[string]string), theirs: make(map[[2]string]bool), busy: make(map[string]bool), slow: make(map[string]chan struct{}), names: make([]string, 2)}
	h.writer = units.New(h.systemd.connect, func(string) {})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.writer.Run(ctx)
	}()
	h.stop = func() {
		h.release()
		cancel()
		<-ended
	}
	for i := range h.names {
		h.create(i)
	}
	return h
}

func (h *history) create(i int) {
	h.names[i] = fmt.Sprintf("unit%d.scope", h.made)
	h.made++
	h.want[h.names[i]] = make(map[string]string)
	h.systemd.create(h.names[i], map[string]string{"cpuset.cpus": "0-9", "cpuset.mems": "0", "memory.low": "0", "memory.max": "max"})
}

func (h *history) draw(t *rapid.T) (unit string, files map[string]string) {
	files = make(map[string]string)
	for _, file := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"cpuset.cpus", "memory.low", "memory.max", "hugetlb.2MB.max"}), 1, 4, rapid.ID[string]).Draw(t, "files") {
		files[file] = rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "content")
	}
	return rapid.SampledFrom(h.names).Draw(t, "unit"), files
}

// note keeps what of files becomes properties.
func (h *history) note(unit string, files map[string]string) {
	maps.Copy(h.want[unit], files)
	delete(h.want[unit], "hugetlb.2MB.max")
}

func (h *history) set(t *rapid.T) {
	unit, files := h.draw(t)
	h.systemd.allow(unit, files)
	h.systemd.locked(func() { h.note(unit, files) })
	require.NoError(t, h.writer.Set(unit, files))
}

func (h *history) write(t *rapid.T) {
	unit, files := h.draw(t)
	delete(files, "hugetlb.2MB.max")
	if len(files) == 0 || h.writing(unit) {
		return
	}
	fail := make(map[string]bool)
	if rapid.IntRange(0, 4).Draw(t, "fail") == 0 {
		fail[slices.Sorted(maps.Keys(files))[0]] = true
	}
	var slow chan struct{}
	if rapid.Bool().Draw(t, "slow") {
		slow = make(chan struct{})
		h.slow[unit] = slow
	}
	h.systemd.locked(func() { h.busy[unit] = true })
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := h.writer.Write(ctx, unit, files, func() ([]string, error) {
			h.systemd.begin(unit)
			if slow != nil {
				<-slow
			}
			changed := h.systemd.end(unit, files, fail)
			h.systemd.locked(func() {
				h.note(unit, files)
				for file := range files {
					delete(h.theirs, [2]string{unit, file})
				}
			})
			if len(fail) > 0 {
				return changed, errors.New("the kernel refused")
			}
			return changed, nil
		})
		h.systemd.locked(func() {
			h.busy[unit] = false
			if len(fail) == 0 && err != nil && !errors.Is(err, context.DeadlineExceeded) {
				h.systemd.breach("%s: %w", unit, err)
			}
		})
	}()
}

func (h *history) writing(unit string) (is bool) {
	h.systemd.locked(func() { is = h.busy[unit] })
	return is
}

// release lets slow direct writes end.
func (h *history) release() {
	for _, slow := range h.slow {
		close(slow)
	}
	clear(h.slow)
	synctest.Wait()
}

func (h *history) lose() {
	h.systemd.mu.Lock()
	conn := h.systemd.conn
	h.systemd.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

func (h *history) foreign(t *rapid.T) {
	unit := rapid.SampledFrom(h.names).Draw(t, "unit")
	if !h.writing(unit) {
		h.systemd.foreign(unit, "memory.low", "7")
		h.systemd.locked(func() { h.theirs[[2]string{unit, "memory.low"}] = true })
	}
}

// replace ends a unit and makes another.
func (h *history) replace(t *rapid.T) {
	i := rapid.IntRange(0, len(h.names)-1).Draw(t, "index")
	unit := h.names[i]
	if h.writing(unit) {
		return
	}
	h.systemd.locked(func() { delete(h.systemd.units, unit) })
	if rapid.Bool().Draw(t, "forget") {
		h.writer.Forget(unit)
	}
	h.create(i)
}

func (h *history) check(t *rapid.T) {
	synctest.Wait()
	if rapid.IntRange(0, 2).Draw(t, "release") == 0 {
		h.release()
	}
	h.systemd.locked(func() { require.NoError(t, h.systemd.wrong) })
}

// finish lets everything come to rest and compares.
func (h *history) finish(t *rapid.T) {
	h.release()
	h.systemd.locked(func() { h.systemd.off = false })
	h.settle(t)
	h.compare(t)
	clear(h.theirs)
	// The periodic repair: what others changed is found and set again.
	for _, unit := range h.names {
		files := maps.Clone(h.want[unit])
		_, err := h.writer.Write(context.Background(), unit, files, func() ([]string, error) { return h.systemd.end(unit, files, nil), nil })
		require.NoError(t, err)
	}
	h.settle(t)
	h.compare(t)
	sent := h.systemd.sent
	for _, unit := range h.names {
		require.NoError(t, h.writer.Set(unit, h.want[unit]))
	}
	synctest.Wait()
	require.Equal(t, sent, h.systemd.sent, "what systemd has is not sent again")
}

// compare checks that all is as it was asked for, but what others changed.
func (h *history) compare(t *rapid.T) {
	require.NoError(t, h.systemd.wrong)
	for _, unit := range h.names {
		c := h.systemd.units[unit]
		for file, v := range h.want[unit] {
			if !h.theirs[[2]string{unit, file}] {
				require.Equal(t, v, c.files[file], "%s %s", unit, file)
				require.Equal(t, v, c.properties[file], "%s %s", unit, file)
			}
		}
	}
}

// settle executes calls until nothing is left to do.
func (h *history) settle(t *rapid.T) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 {
		synctest.Wait()
		settled := h.systemd.waiting() == 0
		for _, unit := range h.names {
			settled = settled && h.writer.Settle(over, unit) == nil
		}
		if settled {
			return
		}
		if h.systemd.waiting() == 0 {
			time.Sleep(40 * time.Second)
		}
		h.systemd.step(false)
	}
	t.Fatal("does not come to rest")
}
