// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

// action is something that happens on the node.
type action struct {
	name string
	do   func() error
	// actuator and frontend report whether the process works in the action, and so may
	// crash in it.
	actuator, frontend bool
}

// String returns the action's name.
func (a action) String() string { return a.name }

// actions returns what can happen now.
func (w *world) actions() []action {
	var all []action
	for i, p := range pods() {
		c, there := w.containers[p.uid]
		claimed := p.decision != nil
		name := fmt.Sprintf("pod %d: ", i+1)
		if claimed && !there && !w.frontend.over {
			all = append(all, action{name: name + "prepare", frontend: true, do: func() error {
				_, err := w.do(func() error {
					_, err := w.prepare(p)
					return err
				})
				return err
			}})
		}
		if !there && (!claimed || w.prepared(p)) {
			all = append(all, action{name: name + "run", actuator: true, do: func() error { return w.run(p) }})
		}
		if there {
			all = append(all,
				action{name: name + "end", actuator: true, do: func() error { return w.end(c) }},
				action{name: name + "foreign cpuset", do: func() error { return w.foreign(c, "cpuset.cpus", "0-3") }},
				action{name: name + "foreign member", do: func() error { return w.foreign(c, contract.FilePartition, "member") }})
		}
		if !there && (w.exists(p.dir()) || claimed && w.prepared(p)) && !w.frontend.over {
			all = append(all, action{name: name + "delete", frontend: true, do: func() error { return w.delete(p) }})
		}
	}
	all = append(all,
		action{name: "refresh", actuator: true, do: w.refreshIfAlive},
		action{name: "apply", actuator: true, do: w.applyIfAlive},
		action{name: "restart runtime", actuator: true, do: w.reconnectIfAlive},
		action{name: "kill actuator", do: func() error { w.actuator.over = true; return nil }},
		action{name: "restart actuator", actuator: true, do: func() error { return w.startActuator(w.actuator.fault) }},
		action{name: "restart frontend", frontend: true, do: func() error { return w.startFrontend(w.frontend.fault) }},
		action{name: "CPU 3 goes or comes", do: w.plug},
		action{name: "reboot", do: w.reboot},
	)
	return all
}

// take takes an action with a fault in the processes that work in it. An error is a
// violation of an invariant, or an error that no fault explains.
func (w *world) take(a action, f fault) error {
	if a.actuator {
		w.actuator.fault = f
	}
	if a.frontend {
		w.frontend.fault = f
	}
	if err := a.do(); err != nil && !errors.Is(err, syscall.EIO) {
		return err
	}
	w.check(a.name)
	w.actuator.fault, w.frontend.fault = none, none
	w.actuator.failed = false
	return w.broken
}

// finish lets both daemons do their work, and then releases all pods.
func (w *world) finish() error {
	if err := w.startFrontend(none); err != nil {
		return err
	}
	if !w.alive() {
		if err := w.startActuator(none); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	if err := w.rest(); err != nil {
		return fmt.Errorf("at rest: %w", err)
	}
	for _, p := range pods() {
		if c := w.containers[p.uid]; c != nil {
			if err := w.end(c); err != nil {
				return err
			}
		}
		if err := w.delete(p); err != nil {
			return err
		}
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.empty()
}

// settle lets the refresh interval pass twice.
func (w *world) settle() error {
	for range 2 {
		if err := w.refresh(); err != nil {
			return err
		}
		w.check("a refresh")
	}
	return w.broken
}

// foreign is a write of another program into a container's cgroup.
func (w *world) foreign(c *container, file, content string) error {
	c.unknown = true
	return w.kernel.Write(c.dir(), file, content)
}

// delete is kubelet's end of a pod: the claim is released, and the cgroup removed.
func (w *world) delete(p pod) error {
	if p.decision != nil {
		if _, err := w.do(func() error { return w.unprepare(p) }); err != nil {
			return err
		}
	}
	return w.removePodCgroup(p)
}

// plug takes CPU 3 offline, or brings it back. The model leaves out the last CPU of a
// partition.
func (w *world) plug() error {
	err := w.kernel.SetOnline(3, w.offline)
	if errors.Is(err, kernel.ErrOutside) {
		return nil
	}
	w.offline = !w.offline
	return err
}

func (w *world) refreshIfAlive() error {
	if !w.alive() {
		return nil
	}
	return w.refresh()
}

func (w *world) applyIfAlive() error {
	if !w.alive() {
		return nil
	}
	return w.apply()
}

func (w *world) reconnectIfAlive() error {
	if !w.alive() {
		return nil
	}
	return w.connect()
}
