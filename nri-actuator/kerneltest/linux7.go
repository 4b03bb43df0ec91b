// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"slices"
	"syscall"
)

// linux7 has the rules for CPUs of Linux 7.
type linux7 struct{}

func (linux7) allowed(k *Kernel, c *cgroup, trial cgroup) error {
	if c.kind != member && !trial.named().overlaps(k.online) {
		return ErrOutside // the answer depends on the accounts of the deadline scheduler
	}
	for _, sibling := range c.parent.children {
		if sibling == c {
			continue
		}
		covers := trial.exclusive != c.exclusive && !sibling.cpus.empty() && sibling.cpus.subsetOf(trial.exclusive)
		if covers || trial.exclusive.overlaps(sibling.exclusive) {
			return syscall.EINVAL
		}
	}
	return nil
}

// granted leaves out the siblings' CPUs, unless the cgroup names CPUs in
// cpuset.cpus.exclusive, which no sibling can name.
func (l linux7) granted(c *cgroup) set {
	cpus := c.named().meet(c.parent.granted)
	if !c.exclusive.empty() {
		return cpus
	}
	return cpus.without(l.siblings(c))
}

// siblings returns the CPUs that siblings have or name for themselves.
func (linux7) siblings(c *cgroup) (cpus set) {
	for _, sibling := range c.parent.children {
		if sibling != c {
			cpus = cpus.union(sibling.exclusive.orIfEmpty(sibling.granted))
		}
	}
	return cpus
}

func (l linux7) setCPUs(k *Kernel, c *cgroup, cpus set) error {
	if cpus == c.cpus {
		return nil
	}
	trial := *c
	trial.cpus = cpus
	trial.granted = l.asked(trial).without(l.siblings(c))
	if err := l.allowed(k, c, trial); err != nil {
		return err
	}
	l.change(k, c, trial, true)
	return nil
}

func (l linux7) setExclusive(k *Kernel, c *cgroup, cpus set) error {
	switch {
	case cpus == c.exclusive:
		return nil
	case !cpus.subsetOf(k.cpus):
		return syscall.EINVAL
	}
	trial := *c
	trial.exclusive = cpus
	if l.asked(trial).overlaps(l.siblings(c)) {
		return syscall.EINVAL
	}
	trial.granted = l.asked(trial)
	if err := l.allowed(k, c, trial); err != nil {
		return err
	}
	l.change(k, c, trial, false)
	return nil
}

// asked returns the CPUs that the cgroup asks its parent for. cpuset.cpus counts in
// partitions only.
func (linux7) asked(c cgroup) set {
	if c.kind == member {
		return c.exclusive.meet(c.parent.granted)
	}
	return c.named().meet(c.parent.granted)
}

// change gives the cgroup the CPUs of trial.
func (l linux7) change(k *Kernel, c *cgroup, trial cgroup, always bool) {
	was, changed := c.valid(), c.granted != trial.granted
	if c.kind != member {
		reason := ""
		switch {
		case trial.granted.empty():
			reason = badCPUs
		case k.starves(c, trial.granted):
			reason = noneLeft
		}
		if reason != "" {
			c.reason = reason
		}
		switch {
		case c.remote && reason != "":
			l.endRemote(k, c)
		case c.remote:
			l.resize(k, c, trial.exclusive, trial.granted)
		}
	}
	c.cpus, c.exclusive, c.granted = trial.cpus, trial.exclusive, trial.granted
	if was && !c.valid() {
		c.reset()
	}
	if always || c.valid() || changed {
		l.spread(k, c, changed)
	}
}

func (l linux7) setPartition(k *Kernel, c *cgroup, kind partitionKind) {
	if kind == c.kind && !c.invalid {
		return
	}
	reason := ""
	switch {
	case kind == member && c.remote:
		l.endRemote(k, c)
	case kind != member && !c.valid():
		reason = l.makeRemote(k, c)
	}
	c.kind, c.invalid, c.reason = kind, reason != "", reason
	if !c.valid() {
		c.reset()
	}
	l.spread(k, c, kind == member)
}

// makeRemote takes the CPUs that the cgroup names from the root. It returns why it
// does not.
func (l linux7) makeRemote(k *Kernel, c *cgroup) (reason string) {
	if c.named().empty() {
		return noCPUs
	}
	cpus := l.granted(c)
	if !cpus.overlaps(k.online) || k.root.effective.subsetOf(cpus) {
		return badCPUs
	}
	k.taken = k.taken.union(cpus)
	k.root.effective = k.root.effective.without(cpus)
	c.remote, c.granted, c.reason = true, cpus, ""
	k.remotes = slices.Insert(k.remotes, 0, c)
	k.spreadRoot()
	return ""
}

func (l linux7) endRemote(k *Kernel, c *cgroup) {
	c.remote = false
	k.remotes = slices.DeleteFunc(k.remotes, func(r *cgroup) bool { return r == c })
	k.taken = k.taken.without(c.granted)
	k.root.effective = k.root.effective.union(c.granted.meet(k.online))
	if c.reason == "" {
		c.kind, c.invalid = member, false
	} else {
		c.invalid = !c.invalid // the kernel negates the state: an invalid partition becomes valid
	}
	c.granted = l.granted(c)
	c.reset()
	k.spreadRoot()
}

// resize gives a remote partition other CPUs, or ends it.
func (l linux7) resize(k *Kernel, c *cgroup, exclusive, cpus set) {
	added, removed := cpus.without(c.granted), c.granted.without(cpus)
	switch {
	case cpus.empty():
		c.reason = noCPUs
	case !added.empty() && (added.overlaps(k.taken) || k.root.effective.subsetOf(added)):
		c.reason = noneLeft
	default:
		k.taken = k.taken.union(added).without(removed)
		k.root.effective = k.root.effective.without(added).union(removed.meet(k.online))
		c.granted, c.exclusive = cpus, exclusive
		k.spreadRoot()
		return
	}
	l.endRemote(k, c)
}

func (l linux7) spread(k *Kernel, start *cgroup, force bool) {
	start.walk(func(c *cgroup) bool {
		kind, invalid := c.kind, c.invalid
		if c.remote && c != start {
			cpus := l.granted(c)
			if cpus == c.granted {
				return false
			}
			l.resize(k, c, c.exclusive, cpus)
		}
		effective := l.granted(c).meet(k.online)
		if !c.remote {
			effective = c.cpus.meet(c.parent.effective).orIfEmpty(c.parent.effective)
			switch {
			case c.kind == member && !force && effective == c.effective:
				return false
			case c != start && (kind != member || invalid):
				c.reason = notPartition
			}
		}
		c.effective = effective
		if c.valid() || !c.exclusive.empty() {
			c.granted = l.granted(c)
		}
		if !c.valid() {
			c.reset()
		}
		return true
	})
}
