// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// containers are the containers by id.
type containers struct {
	all map[string]*Container
	// created and removed are containers of calls before the runtime's list,
	// which may be older than these calls. They are nil while there is a list.
	created, removed map[string]bool
}

// unlisted begins to wait for the runtime's list.
func (k *containers) unlisted() {
	if k.created == nil {
		k.created, k.removed = make(map[string]bool), make(map[string]bool)
	}
}

func (k *containers) add(c *Container) {
	k.all[c.ID] = c
	if k.created != nil {
		k.created[c.ID] = true
	}
}

func (k *containers) removedByRuntime(id string) {
	if k.removed != nil {
		k.removed[id] = true
	}
}

// replace takes over the runtime's list.
func (k *containers) replace(list []*Container) {
	before := k.all
	k.all = make(map[string]*Container, len(list))
	for _, c := range list {
		if !k.removed[c.ID] {
			c.resume(before[c.ID])
			k.all[c.ID] = c
		}
	}
	for id := range k.created {
		if c := before[id]; c != nil && k.all[id] == nil {
			k.all[id] = c
		}
	}
	k.created, k.removed = nil, nil
}

// sorted returns the containers in the order of their ids (I8).
func (k *containers) sorted() []*Container {
	return slices.SortedFunc(maps.Values(k.all), func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
}

// byDir returns the containers by the directories of their cgroups.
func (k *containers) byDir() map[string]*Container {
	dirs := make(map[string]*Container, len(k.all))
	for _, c := range k.all {
		if c.Cgroups.Dir != "" {
			dirs[c.Cgroups.Dir] = c
		}
	}
	return dirs
}

// Unlisted notes that no list of a runtime is in force.
func (e *Enforcer) Unlisted() { e.containers.unlisted() }

// FindOrAdd returns the known container with the id of reported. It adds reported if
// no such container is known, and replaces the known container if only reported has a
// pod. known reports whether the container was known before.
func (e *Enforcer) FindOrAdd(reported *Container) (c *Container, known bool) {
	c, known = e.containers.all[reported.ID]
	if !known || c.Life.PodUnlisted && !reported.Life.PodUnlisted {
		reported.resume(c)
		e.containers.add(reported)
		return reported, known
	}
	return c, true
}

// Find returns the container with the id, nil if it is not known.
func (e *Enforcer) Find(id string) *Container { return e.containers.all[id] }

// HasContainers reports whether a container is known.
func (e *Enforcer) HasContainers() bool { return len(e.containers.all) > 0 }

// Add takes in a container.
func (e *Enforcer) Add(c *Container) { e.containers.add(c) }

// Drop forgets a container that was not created.
func (e *Enforcer) Drop(c *Container) {
	if e.containers.all[c.ID] == c {
		delete(e.containers.all, c.ID)
	}
}

// Replace takes over the runtime's list.
func (e *Enforcer) Replace(ctx context.Context, list []*Container) {
	before := e.containers.all
	e.containers.replace(list)
	for id, c := range before {
		if e.containers.all[id] != nil || !c.Life.Started || !c.Life.seen || c.Life.adopted {
			continue
		}
		// Runtimes do not list containers that have stopped. Such a container counts
		// while a process of it runs (I1).
		if e.containers.all[id] = c; !e.populated(c) {
			e.Remove(ctx, c)
		}
	}
	var dirs []string
	for _, c := range e.containers.all {
		dirs = append(dirs, c.Cgroups.Dir, c.Cgroups.Pod)
	}
	if err := e.Units.Reset(dirs); err != nil {
		logs.From(ctx).Warn("old drop-ins stay", zap.Error(err))
	}
	logs.From(ctx).Info("synchronising", zap.Int("containers", len(e.containers.all)))
}

// Stopped forgets a container if its cgroup is gone, after the runtime has
// stopped it. Some runtimes say so before the program has ended: the container
// is kept off claimed CPUs until its cgroup is gone.
func (e *Enforcer) Stopped(ctx context.Context, c *Container) {
	c.Life.Started = true
	e.gone(ctx, c)
}

// HasCgroup reports whether the container's cgroup exists.
func (e *Enforcer) HasCgroup(c *Container) bool {
	return c.Cgroups.Dir != "" && e.Mount.Exists(c.Cgroups.Dir)
}

// populated reports whether a process may be in the container's cgroup, or below
// it (cgroup-v2.rst, "cgroup.events").
func (e *Enforcer) populated(c *Container) bool {
	events, err := e.Mount.Read(c.Cgroups.Dir, "cgroup.events")
	return e.HasCgroup(c) && (err != nil || !slices.Contains(strings.Split(events, "\n"), "populated 0"))
}

// EndedLate is Stopped, or Remove if removed, for the id of a container of a while ago.
func (e *Enforcer) EndedLate(ctx context.Context, id string, removed bool) {
	if c := e.containers.all[id]; c != nil {
		c.Life.Started, c.Life.seen = true, true
		if e.gone(ctx, c); removed {
			e.Remove(ctx, c)
		}
	}
	e.containers.removedByRuntime(id)
}

// Remove ends the container's partition and forgets the container.
func (e *Enforcer) Remove(ctx context.Context, c *Container) {
	// A process that cannot die keeps the cgroup. A partition must not end after
	// the cgroups above it have given up its CPUs.
	if err := e.endPartition(c); err != nil {
		logs.From(ctx).Error("remove, tried again while the cgroup exists", zap.Error(describe(c, err)))
		// Without its claim each plan ends the partition.
		c.lastValid, c.References = nil, claims.Container{PodUID: c.References.PodUID}
		c.Life.Started, c.Life.seen, c.Life.removed = true, true, true
		e.gone(ctx, c)
	} else {
		e.forget(ctx, c)
	}
	e.containers.removedByRuntime(c.ID)
}

// gone forgets a container if its cgroup is gone for good. A container without a
// cgroup of its own is forgotten when the runtime removes it.
func (e *Enforcer) gone(ctx context.Context, c *Container) {
	if !c.Life.Started || c.Cgroups.Dir == "" {
		return
	}
	exists := e.Mount.Exists(c.Cgroups.Dir)
	c.Life.seen = c.Life.seen || exists
	if c.Life.seen && !exists {
		e.forget(ctx, c)
	}
}

func (e *Enforcer) forget(ctx context.Context, c *Container) {
	delete(e.containers.all, c.ID)
	e.forgetUnit(ctx, c.Cgroups.Dir)
}
