// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
)

// action is something that happens on the node.
type action struct {
	name string
	// do takes the action. Processes that start in it have the mishap.
	do func(m mishap) error
	// actuator and frontend report whether the process works in the action, and so may
	// have the mishap.
	actuator, frontend bool
}

// String returns the action's name.
func (a action) String() string { return a.name }

// actions returns what can happen now.
func (w *world) actions() []action {
	var all []action
	add := func(name string, actuator, frontend bool, do func() error) {
		all = append(all, action{name, func(mishap) error { return do() }, actuator, frontend})
	}
	for _, p := range w.pods {
		name, claimed := "pod with "+p.name+": ", p.claimed()
		if claimed && !w.prepared(p) && !w.frontend.over {
			add(name+"prepare", false, true, func() error { return w.prepare(p) })
		}
		for _, at := range p.slots() {
			part := name
			if at.index > 0 {
				part += "container " + at.name() + ": "
			}
			if c := w.containers[at]; c != nil {
				w.addContainerActions(c, part, add)
			} else if !claimed || w.prepared(p) {
				add(part+"create", true, false, func() error { return w.create(p, at) })
			}
		}
		if !w.populated(p) && (w.exists(p.dir()) || claimed && w.held(p)) && !w.frontend.over {
			add(name+"delete", false, true, func() error { return w.delete(p) })
		}
	}
	if !w.actuator.over {
		// Errors of these two are reported, and count when the world is at rest.
		add("refresh", true, false, func() error { _ = w.refresh(); return nil })
		add("the directory has changed", true, false, func() error { _ = w.apply(); return nil })
		add("the actuator is killed", false, false, func() error { w.actuator.over = true; return nil })
	}
	if w.answers() {
		add("the runtime restarts", true, false, w.connect)
		add("a pod without a claim forges the others' claims", true, false, w.forge)
	}
	if w.away {
		add("the actuator and the runtime connect", true, false, w.reconnect)
	} else {
		add("the runtime loses the actuator", false, false, w.disconnect)
	}
	add("CPU 3 goes or comes", false, false, w.plug)
	w.addDamage(add)
	if !w.frontend.over {
		add("the frontend looks at the directory", false, true, w.reconcile)
	}
	return append(all,
		action{name: "the actuator restarts", do: w.startActuator},
		action{name: "the frontend restarts", do: w.startFrontend},
		action{name: "reboot", do: w.reboot},
		action{name: rebootOnDisk, do: func(m mishap) error { return w.boots(w.disk.Now(), m) }})
}

// rebootOnDisk is a reboot of a node whose CDI directory is on a disk.
const rebootOnDisk = "reboot, files stay"

func (w *world) addContainerActions(c *container, name string, add func(name string, actuator, frontend bool, do func() error)) {
	switch {
	case c.phase == created:
		add(name+"make the cgroup", false, false, func() error { return w.make(c) })
	case c.phase == made && w.guarded(c):
		add(name+"start", true, false, func() error { return w.start(c) })
	case c.phase == running:
		add(name+"update", true, false, func() error { return w.update(c) })
		add(name+"another program widens the cpuset", false, false, func() error { return w.foreign(c, "cpuset.cpus", "0-3") })
		if c.spec[contract.FilePartition] != "" {
			add(name+"another program ends the partition", false, false, func() error { return w.foreign(c, contract.FilePartition, "member") })
		}
	}
	add(name+"end", true, false, func() error { return w.end(c) })
}

// take takes an action with a mishap. An error is a violation of an invariant, or an
// error that the mishap does not explain.
func (w *world) take(a action, m mishap) error {
	if a.actuator {
		w.actuator.mishap = m
	}
	if a.frontend {
		w.frontend.mishap = m
	}
	w.beginCounts()
	err := a.do(m)
	if w.counts.lost {
		left := w.counts.left
		w.counts.lost = false
		err = w.boots(left[len(left)-1], mishap{})
	}
	w.check(a.name)
	if wrong := w.actuator.wrong || w.frontend.wrong; err != nil && !wrong {
		return err
	}
	for _, l := range []*life{w.actuator, w.frontend} {
		l.mishap, l.wrong = mishap{}, false
	}
	return w.broken
}

// finish lets both daemons do their work, starts what can start, and then ends all pods
// and releases their claims.
func (w *world) finish() error {
	if err := errors.Join(w.settle(), w.drain(), w.settle()); err != nil {
		return err
	}
	for _, p := range w.pods {
		if w.populated(p) && p.claimed() && !w.held(p) {
			if err := w.prepare(p); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(w.giveUp(), w.settle()); err != nil {
		return err
	}
	for _, p := range w.pods {
		if !p.claimed() || w.prepared(p) {
			if err := w.bring(p); err != nil {
				return err
			}
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	last := w.pods[len(w.pods)-1]
	for _, p := range w.pods {
		if p.uid == last.uid {
			// The pool grows back into a running container (I3).
			if err := errors.Join(w.settle(), w.hasAll(w.containers[p.slots()[0]])); err != nil {
				return err
			}
		}
		if err := w.endPod(p); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.empty()
}

// giveUp ends the containers that wait in their guards for claims that are not prepared:
// the guards give up.
func (w *world) giveUp() error {
	for _, c := range w.sorted() {
		if c.claimed() && c.phase != running && !w.prepared(c.pod) {
			if err := w.end(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle brings both daemons back, lets the refresh interval pass twice, and checks
// what holds then.
func (w *world) settle() error {
	if w.frontend.over {
		if err := w.startFrontend(mishap{}); err != nil {
			return err
		}
	}
	if err := w.reconcile(); err != nil {
		return err
	}
	if w.actuator.over {
		if err := w.startActuator(mishap{}); err != nil {
			return err
		}
	}
	if w.away {
		if err := w.reconnect(); err != nil {
			return err
		}
	}
	for range 2 {
		if err := w.refresh(); err != nil && !w.blocked() {
			return err
		}
		w.check("a refresh")
	}
	if w.broken != nil {
		return w.broken
	}
	if err := w.rest(); err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	return nil
}

// endPod ends the containers of a pod, and then the pod.
func (w *world) endPod(p pod) error {
	for _, at := range p.slots() {
		if c := w.containers[at]; c != nil {
			if err := w.end(c); err != nil {
				return err
			}
		}
	}
	return w.delete(p)
}

// bring brings the containers of a pod to run. A container that waits in its guard may
// end, as one would whose guard gives up; the next one must start.
func (w *world) bring(p pod) error {
	for _, at := range p.slots() {
		c := w.containers[at]
		if c != nil && c.phase == running {
			continue
		}
		if c != nil {
			if err := w.end(c); err != nil {
				return err
			}
		}
		if err := w.bringNew(p, at); err != nil {
			return err
		}
	}
	return w.broken
}

func (w *world) bringNew(p pod, at slot) error {
	if err := w.create(p, at); err != nil {
		return err
	}
	c := w.containers[at]
	if c == nil {
		return fmt.Errorf("the pod with %s is refused: %w", p.name, w.refused)
	}
	if err := w.make(c); err != nil {
		return err
	}
	if !w.guarded(c) {
		return fmt.Errorf("the container of the pod with %s waits in its guard", p.name)
	}
	if err := w.start(c); err != nil {
		return err
	}
	w.check("the start of the pod with " + p.name)
	if w.containers[at] == nil {
		return fmt.Errorf("the container of the pod with %s may not start", p.name)
	}
	return nil
}

// plug takes CPU 3 offline, or brings it back. The model leaves out the last CPU of a
// partition.
func (w *world) plug() error {
	err := w.kernel.SetOnline(3, w.offline)
	if errors.Is(err, kerneltest.ErrOutside) {
		return nil
	}
	w.offline = !w.offline
	return err
}
