// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// containers are the known containers in the order of their ids (I8). A slice is never changed in place, so that a loop over the
// containers may forget containers.
type containers []*Container

func (k containers) search(id string) (at int, found bool) {
	return slices.BinarySearchFunc(k, id, func(c *Container, id string) int { return cmp.Compare(c.ID, id) })
}

// find returns the container with the id, nil if there is none.
func (k containers) find(id string) *Container {
	if at, found := k.search(id); found {
		return k[at]
	}
	return nil
}

// with returns the containers and c, which replaces a container with the same id.
func (k containers) with(c *Container) containers {
	at, found := k.search(c.ID)
	after := k[at:]
	if found {
		after = after[1:]
	}
	return slices.Concat(k[:at], containers{c}, after)
}

// without returns all containers but the container with the id.
func (k containers) without(id string) containers {
	at, found := k.search(id)
	if !found {
		return k
	}
	return slices.Concat(k[:at], k[at+1:])
}

// in returns the containers of the cgroups, by directory.
func (k containers) in(cgroups map[string]tree.Cgroup) map[string]*Container {
	dirs := make(map[string]*Container, len(cgroups))
	for _, c := range k {
		if _, is := cgroups[c.Cgroups.Dir]; is {
			dirs[c.Cgroups.Dir] = c
		}
	}
	return dirs
}

// FindOrAdd returns the known container with the id of reported. It adds reported if
// no such container is known, and replaces a known container without a listed pod: calls
// about a container bring its pod. known reports whether the container was known before.
func (e *Enforcer) FindOrAdd(reported *Container) (c *Container, known bool) {
	c = e.containers.find(reported.ID)
	known = c != nil
	if !known || c.Life.PodUnlisted {
		reported.resume(c)
		e.containers = e.containers.with(reported)
		return reported, known
	}
	c.Life.Started = c.Life.Started || reported.Life.Started
	return c, true
}

// Find returns the container with the id, nil if it is not known.
func (e *Enforcer) Find(id string) *Container { return e.containers.find(id) }

// HasContainers reports whether a container is known.
func (e *Enforcer) HasContainers() bool { return len(e.containers) > 0 }

// Add takes in a container that is created. Kubelet has given up the pod's earlier container of the same
// name: if the earlier container was not started and has no cgroup, no runtime may report its end.
func (e *Enforcer) Add(ctx context.Context, c *Container) {
	for _, earlier := range e.containers {
		if earlier.Name == c.Name && earlier.References.PodUID == c.References.PodUID && !earlier.Life.Started && !e.HasCgroup(earlier) {
			e.forget(ctx, earlier)
		}
	}
	e.containers = e.containers.with(c)
}

// Drop forgets a container that was not created.
func (e *Enforcer) Drop(c *Container) {
	if e.containers.find(c.ID) == c {
		e.containers = e.containers.without(c.ID)
	}
}

// Replace takes over the runtime's list.
func (e *Enforcer) Replace(ctx context.Context, list []*Container) {
	before := e.containers
	e.containers = nil
	for _, c := range list {
		c.resume(before.find(c.ID))
		e.containers = e.containers.with(c)
	}
	listed := make(map[string]bool, len(list))
	for _, c := range list {
		listed[c.Cgroups.Dir] = true
	}
	for _, c := range before {
		if e.containers.find(c.ID) != nil || !c.Life.Started || c.Life.adopted && listed[c.Cgroups.Dir] {
			continue
		}
		// The runtime's list may lack a stopped container, and never has an adopted sandbox. Both count
		// while a process in their cgroup runs (I1). The cgroup of the sandbox names CPUs, and
		// while the cgroup names them, the kernel makes no partition of these CPUs in the pod.
		c.Life.adopted = false
		if e.containers = e.containers.with(c); !e.populated(c) {
			e.remove(ctx, c)
		}
	}
	var dirs []string
	for _, c := range e.containers {
		dirs = append(dirs, c.Cgroups.Dir, c.Cgroups.Pod)
	}
	if err := e.Units.Reset(dirs); err != nil {
		logs.From(ctx).Warn("old drop-ins stay", zap.Error(err))
	}
	logs.From(ctx).Info("synchronising", zap.Int("containers", len(e.containers)))
}

// Ended notes that the runtime has stopped the container, or removed it. Some
// runtimes report the stop before the program has ended: the container is kept off
// claimed CPUs until its cgroup is gone (I1).
func (e *Enforcer) Ended(ctx context.Context, id string, removed bool) {
	c := e.containers.find(id)
	if c == nil {
		return
	}
	if c.Life.Started = true; removed {
		e.remove(ctx, c)
	} else {
		e.forgetIfGone(ctx, c)
	}
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

// remove ends the container's partition and forgets the container.
func (e *Enforcer) remove(ctx context.Context, c *Container) {
	// A process that cannot die keeps the cgroup. A partition must not end after
	// the cgroups above it have given up its CPUs.
	if err := e.endPartition(c); err != nil {
		logs.From(ctx).Error("partition of a removed container not ended; nri-actuator tries again while its cgroup exists",
			zap.Error(describe(c, err)))
		// The container loses its claim here, so that each later plan ends the partition, even if the
		// runtime did not list the container's pod.
		c.lastValid, c.References = nil, claims.Container{PodUID: c.References.PodUID}
		c.Life.seen, c.Life.removed, c.Life.PodUnlisted = true, true, false
		return
	}
	e.forget(ctx, c)
}

// forgetIfGone forgets a container if its cgroup is gone for good. A container without a
// cgroup of its own is forgotten when the runtime removes it. The runtime may report no end of a
// container whose creation or start failed: such a container is gone when its pod's cgroup is, which
// kubelet makes before the pod's containers and removes after their end. A container whose pod's cgroup
// is not known stays (I1).
func (e *Enforcer) forgetIfGone(ctx context.Context, c *Container) {
	if !c.Life.Started && !c.Life.PodUnlisted && c.Cgroups.Pod != "" && !e.Mount.Exists(c.Cgroups.Pod) {
		e.forget(ctx, c)
		return
	}
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
	e.containers = e.containers.without(c.ID)
	e.forgetUnit(ctx, c.Cgroups.Dir)
}
