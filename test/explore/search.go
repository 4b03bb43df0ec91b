// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// happened is an action that was taken, by its name, with its mishap.
type happened struct {
	action string
	mishap mishap
}

// String returns one line.
func (h happened) String() string {
	if h.mishap.kind == nothing {
		return h.action
	}
	return fmt.Sprintf("%s (%s)", h.action, h.mishap)
}

// history is what has happened, with the number of crashes.
type history struct {
	all     []happened
	crashes int
}

// result has the numbers of different states and of actions taken.
type result struct{ states, taken int }

// busy is a history after which the containers of all pods run whose claims can be
// prepared together: the first claims, or their rivals. The actuator announces that the
// kernel can make partitions when it has seen a pod: the pod without a claim is the first.
func busy(rivals bool) (all []happened) {
	pods := pods()
	last := len(pods) - 1
	for _, p := range append([]pod{pods[last]}, pods[:last]...) {
		if p.claimed() && p.rival != rivals {
			continue
		}
		name := "pod with " + p.name + ": "
		if p.claimed() {
			all = append(all, happened{action: name + "prepare"})
		}
		for _, at := range p.slots() {
			if at.index > 0 {
				name += "container " + at.name() + ": "
			}
			for _, action := range []string{"create", "make the cgroup", "start"} {
				all = append(all, happened{action: name + action})
			}
		}
		all = append(all, happened{action: "refresh"})
	}
	return all
}

// searcher takes all actions in all orders.
type searcher struct {
	dir     string
	version kerneltest.Release
	// crashes is how many crashes a history may have.
	crashes int
	// least is the least number of crashes that leads to a state.
	least map[state]int
	next  []history
	result
}

// search takes all actions in all orders, to a depth, with at most crashes crashes in a
// history after the start. From each new state the world must come to rest and then become
// empty. dir is a directory for the worlds.
func search(dir string, version kerneltest.Release, start []happened, depth, crashes int) (result, error) {
	s := &searcher{dir: dir, version: version, crashes: crashes, least: make(map[state]int)}
	histories := []history{{all: start}}
	for range depth {
		s.next = nil
		for _, h := range histories {
			w, err := s.replay(h.all)
			if err != nil {
				return s.result, err
			}
			for _, a := range w.actions() {
				if err := s.takeEach(h, a.name); err != nil {
					return s.result, err
				}
			}
		}
		histories = s.next
	}
	return s.result, nil
}

// takeEach takes an action after a history: without a mishap, with a crash before each of
// its writes, and with each loss of power.
func (s *searcher) takeEach(h history, name string) error {
	can, err := s.takeOne(h, happened{action: name})
	if err != nil || h.crashes == s.crashes {
		return err
	}
	h.crashes++
	var all []mishap
	for before := range can.writes {
		all = append(all, mishap{crashes, before})
	}
	for before := range can.left {
		all = append(all, mishap{powerLoss, before})
	}
	for _, m := range all {
		if _, err := s.takeOne(h, happened{name, m}); err != nil {
			return err
		}
	}
	return nil
}

// takeOne takes an action after a history, and returns what could go wrong in it.
func (s *searcher) takeOne(h history, last happened) (counts, error) {
	w, err := s.replay(h.all)
	if err != nil {
		return counts{}, err
	}
	h.all = append(slices.Clip(h.all), last)
	if err := w.takeNamed(last); err != nil {
		return counts{}, fmt.Errorf("%s: %w", h.all, err)
	}
	can := w.counts
	s.taken++
	found := w.state()
	least, known := s.least[found]
	if known && least <= h.crashes {
		return can, nil
	}
	s.least[found] = h.crashes
	s.next = append(s.next, h)
	if known {
		return can, nil
	}
	s.states++
	if err := w.finish(); err != nil {
		return counts{}, fmt.Errorf("%s: %w", h.all, err)
	}
	return can, nil
}

// replay returns a world after a history.
func (s *searcher) replay(all []happened) (*world, error) {
	dir := filepath.Join(s.dir, "world")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	w, err := newWorld(dir, s.version)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if err := w.takeNamed(h); err != nil {
			return nil, fmt.Errorf("%s again: %w", all, err)
		}
	}
	return w, nil
}

func (w *world) takeNamed(h happened) error {
	actions := w.actions()
	i := slices.IndexFunc(actions, func(a action) bool { return a.name == h.action })
	if i < 0 {
		return fmt.Errorf("%q cannot happen", h.action)
	}
	return w.take(actions[i], h.mishap)
}
