// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// Unlisted notes that no list of a runtime is in force.
func (e *Enforcer) Unlisted() { e.known.unlisted() }

// Find returns the container as it is known, or told if it is not known, or if
// only told has a pod.
func (e *Enforcer) Find(told *Container) (c *Container, known bool) {
	c, known = e.known.all[told.ID]
	if !known || c.Life.Kept && !told.Life.Kept {
		told.resume(c)
		e.known.add(told)
		return told, known
	}
	return c, true
}

// Known returns the container with the id, nil if it is not known.
func (e *Enforcer) Known(id string) *Container { return e.known.all[id] }

// Any reports whether a container is known.
func (e *Enforcer) Any() bool { return len(e.known.all) > 0 }

// Add takes in a container.
func (e *Enforcer) Add(c *Container) { e.known.add(c) }

// Drop forgets a container that was not created.
func (e *Enforcer) Drop(c *Container) {
	if e.known.all[c.ID] == c {
		delete(e.known.all, c.ID)
	}
}

// Replace takes over the runtime's list.
func (e *Enforcer) Replace(ctx context.Context, list []*Container) {
	e.known.replace(list)
	var dirs []string
	for _, c := range e.known.all {
		dirs = append(dirs, c.Place.Dir, c.Place.Pod)
	}
	if err := e.Units.Reset(dirs); err != nil {
		logs.From(ctx).Warn("old drop-ins stay", zap.Error(err))
	}
	logs.From(ctx).Info("synchronising", zap.Int("containers", len(e.known.all)))
}

// Stopped forgets a container if its cgroup is gone, after the runtime has
// stopped it. Some runtimes say so before the program has ended: the container
// is kept off claimed CPUs until its cgroup is gone.
func (e *Enforcer) Stopped(ctx context.Context, c *Container) {
	c.Life.Started = true
	e.gone(ctx, c)
}

// Left is Stopped for the id of a container that was stopped or removed a while
// ago.
func (e *Enforcer) Left(ctx context.Context, id string) {
	if c := e.known.all[id]; c != nil {
		c.Life.Started, c.Life.seen = true, true
		e.gone(ctx, c)
	}
	e.known.removedByRuntime(id)
}

// Remove ends the container's partition and forgets the container.
func (e *Enforcer) Remove(ctx context.Context, c *Container) {
	// A process that cannot die keeps the cgroup. A partition must not end after
	// the cgroups above it have given up its CPUs.
	if err := e.endPartition(c); err != nil {
		logs.From(ctx).Error("remove", zap.Error(describe(c, err)))
	}
	e.forget(ctx, c)
	e.known.removedByRuntime(c.ID)
}

// gone forgets a container if its cgroup is gone for good. A container without a
// cgroup of its own is forgotten when the runtime removes it.
func (e *Enforcer) gone(ctx context.Context, c *Container) {
	if !c.Life.Started || c.Place.Dir == "" {
		return
	}
	exists := e.Mount.Exists(c.Place.Dir)
	c.Life.seen = c.Life.seen || exists
	if c.Life.seen && !exists {
		e.forget(ctx, c)
	}
}

func (e *Enforcer) forget(ctx context.Context, c *Container) {
	delete(e.known.all, c.ID)
	e.forgetUnit(ctx, c.Place.Dir)
}
