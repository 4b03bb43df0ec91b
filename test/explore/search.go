// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// step is an action, by its place in the list of what can happen, with a fault.
type step struct {
	action int
	fault  fault
}

// result has the numbers of different states and of actions taken.
type result struct{ states, taken int }

// search takes all actions in all orders, to a depth, with at most crashes crashes in a
// history. From each new state the world must come to rest and then become empty.
// dir is a directory for the worlds.
func search(dir string, release kernel.Release, depth, crashes int) (r result, err error) {
	type history struct {
		steps   []step
		crashes int
	}
	seen := make(map[state]int)
	level := []history{{}}
	for range depth {
		var next []history
		for _, h := range level {
			for action := 0; ; action++ {
				most := 0 // the file operations of the action
				for crash := -1; crash < most; crash++ {
					if crash >= 0 && h.crashes == crashes {
						break
					}
					w, err := replay(filepath.Join(dir, "world"), release, h.steps)
					if err != nil {
						return r, err
					}
					actions := w.actions()
					if action >= len(actions) {
						break
					}
					steps := append(h.steps[:len(h.steps):len(h.steps)], step{action, fault{before: crash}})
					frontend, actuator := w.frontend, w.actuator
					before := frontend.taken + actuator.taken
					if err := w.take(actions[action], fault{before: crash}); err != nil {
						return r, fmt.Errorf("%s: %w", describe(release, dir, steps), err)
					}
					r.taken++
					if crash < 0 {
						most = frontend.taken + actuator.taken - before
						if w.actuator != actuator {
							most = w.actuator.taken
						}
					}
					s, err := w.state()
					if err != nil {
						return r, err
					}
					used := h.crashes
					if crash >= 0 {
						used++
					}
					if least, known := seen[s]; known && least <= used {
						continue
					}
					if _, known := seen[s]; !known {
						r.states++
						if err := w.finish(); err != nil {
							return r, fmt.Errorf("%s: %w", describe(release, dir, steps), err)
						}
					}
					seen[s] = used
					next = append(next, history{steps, used})
				}
				if w, err := replay(filepath.Join(dir, "world"), release, h.steps); err != nil || action+1 >= len(w.actions()) {
					break
				}
			}
		}
		level = next
	}
	return r, nil
}

// replay returns a world after the steps.
func replay(dir string, release kernel.Release, steps []step) (*world, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	w, err := newWorld(dir, release)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if err := w.take(w.actions()[s.action], s.fault); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// describe returns the steps as text.
func describe(release kernel.Release, dir string, steps []step) string {
	var text strings.Builder
	for i, s := range steps {
		w, err := replay(filepath.Join(dir, "described"), release, steps[:i])
		if err != nil {
			return err.Error()
		}
		text.WriteString("\n" + w.actions()[s.action].name)
		if s.fault.before >= 0 {
			fmt.Fprintf(&text, ", crash before file operation %d", s.fault.before+1)
		}
	}
	return text.String()
}
