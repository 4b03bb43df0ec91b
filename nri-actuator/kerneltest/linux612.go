// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"slices"
	"syscall"
)

// linux612 has the rules for CPUs of Linux 6.12, and of Linux 6.1, which has no
// remote partitions.
type linux612 struct{}

// allowed returns an error unless the siblings and processes of the cgroup c allow what
// trial has.
func (l linux612) allowed(k *Kernel, c *cgroup, trial cgroup) error {
	if c.populated() && (!c.cpus.empty() && trial.cpus.empty() || !c.mems.empty() && trial.mems.empty()) {
		return syscall.ENOSPC
	}
	if c.strict && !c.cpus.empty() && trial.cpus.empty() {
		return ErrOutside // the answer depends on the accounts of the deadline scheduler
	}
	for _, sibling := range c.parent.children {
		if sibling != c && conflict(trial, *sibling) {
			return syscall.EINVAL
		}
	}
	return nil
}

// conflict reports whether the kernel refuses a beside b: both name the same CPUs for
// themselves, or all CPUs of one are named by the other for itself.
func conflict(a, b cgroup) bool {
	switch {
	case a.strict || b.strict || !a.exclusive.empty() && !b.exclusive.empty():
		return a.named().overlaps(b.named())
	case !a.exclusive.empty():
		return !b.cpus.empty() && b.cpus.subsetOf(a.exclusive)
	case !b.exclusive.empty():
		return !a.cpus.empty() && a.cpus.subsetOf(b.exclusive)
	}
	return false
}

func (l linux612) setCPUs(k *Kernel, c *cgroup, cpus set) error {
	if cpus == c.cpus {
		return nil
	}
	trial := *c
	trial.cpus = cpus
	switch {
	case cpus.empty() && c.exclusive.empty():
		trial.granted = set{}
	case !cpus.empty() && (!c.exclusive.empty() || c.valid()):
		trial.granted = trial.named().meet(c.parent.granted)
	}
	was := c.kind != member && !c.invalid
	invalidate := c.kind != member && k.release.exclusive && l.unusable(k, c, trial.granted, c.valid())
	switch err := l.allowed(k, c, trial); {
	case err == syscall.EINVAL:
		// The write succeeds, and partitions with one of the CPUs become invalid.
		invalidate = true
		for _, sibling := range c.parent.children {
			if sibling.valid() && trial.named().overlaps(sibling.granted) {
				sibling.invalid, sibling.strict = true, false
			}
		}
	case err != nil:
		return err
	}
	switch {
	case c.valid() || c.invalid && !invalidate:
		if c.remote {
			granted := trial.granted
			if granted.empty() && c.invalid {
				granted = cpus
			}
			l.resize(k, c, granted)
		}
	case !c.exclusive.empty():
		l.endRemotes(k, c, trial.granted)
	}
	changed := c.granted != trial.granted
	c.cpus, c.granted = cpus, trial.granted
	if was && !c.valid() {
		c.reset()
	}
	l.spread(k, c, changed)
	return nil
}

func (l linux612) setExclusive(k *Kernel, c *cgroup, cpus set) error {
	if cpus == c.exclusive {
		return nil
	}
	trial := *c
	trial.exclusive, trial.granted = cpus, cpus.meet(c.parent.granted)
	if err := l.allowed(k, c, trial); err != nil {
		return err
	}
	was := c.valid()
	changed := c.granted != trial.granted
	switch {
	case c.kind != member:
		unusable := l.unusable(k, c, trial.granted, true)
		switch {
		case c.remote && unusable:
			l.endRemote(k, c)
		case c.remote:
			l.resize(k, c, trial.granted)
		}
	case !cpus.empty():
		l.endRemotes(k, c, trial.granted)
	}
	c.exclusive, c.granted = cpus, trial.granted
	if was && !c.valid() {
		c.reset()
	}
	if c.valid() || changed {
		l.spread(k, c, changed)
	}
	return nil
}

// spread computes the effective CPUs of the cgroup and its descendants. force visits
// descendants although nothing changes for their parent.
func (l linux612) spread(k *Kernel, start *cgroup, force bool) {
	start.walk(func(c *cgroup) bool {
		if c.remote && c != start {
			return false
		}
		if !c.exclusive.empty() && c != start {
			c.granted = c.named().meet(c.parent.granted)
		}
		effective := c.cpus.meet(c.parent.effective).orIfEmpty(c.parent.effective)
		switch {
		case c.remote:
			effective = l.granted(c).meet(k.online)
		case c.kind == member && !force && effective == c.effective:
			return false
		case c != start && c.kind != member:
			c.reason = notPartition
		}
		c.effective = effective
		switch {
		case c.valid() && c.exclusive.empty():
			c.granted = c.cpus.meet(c.parent.granted)
		case c.invalid:
			c.reset()
		}
		return true
	})
}

// setPartition makes a cgroup a partition or a member. A partition that the kernel
// refuses is invalid.
func (l linux612) setPartition(k *Kernel, c *cgroup, kind partitionKind) {
	if kind == c.kind && !c.invalid {
		return
	}
	if kind != member && c.invalid && k.release.keepsInvalid {
		c.kind = kind
		return
	}
	reason, was := "", c.kind
	if kind != member && c.invalid {
		was = member
	}
	switch {
	case kind == member:
		c.strict = false
		if c.remote {
			l.endRemote(k, c)
		}
	case was == member:
		reason = l.makeRemote(k, c)
	}
	c.kind, c.invalid, c.reason = kind, reason != "", reason
	if c.invalid {
		c.strict = false
	}
	if !c.valid() {
		c.reset()
	}
	l.spread(k, c, kind == member)
}

// makeRemote takes the CPUs that the cgroup names from the root. It returns why it
// does not.
func (l linux612) makeRemote(k *Kernel, c *cgroup) (reason string) {
	if c.exclusive.empty() {
		c.granted = c.cpus.meet(c.parent.granted)
	}
	if !c.strict {
		trial := *c
		trial.strict = true
		if l.allowed(k, c, trial) != nil {
			return notExclusive
		}
		c.strict = true
	}
	if c.named().empty() {
		return k.release.emptyReason
	}
	if !k.release.exclusive {
		return notPartition
	}
	cpus := c.named().meet(c.parent.granted)
	if cpus.empty() || cpus.overlaps(k.taken) || k.root.effective.subsetOf(cpus) {
		return badCPUs
	}
	if c.remote {
		k.damage = "an invalid partition was made a partition again: " + c.dir
	}
	k.taken = k.taken.union(cpus)
	k.root.effective = k.root.effective.without(cpus)
	c.remote = true
	k.remotes = slices.Insert(k.remotes, 0, c)
	k.spreadRoot()
	return ""
}

// endRemote gives the CPUs of a remote partition back to the root. These are the
// CPUs that the cgroup can name at this moment: the kernel loses CPUs that a cgroup
// above names no longer.
func (l linux612) endRemote(k *Kernel, c *cgroup) {
	cpus := c.named().meet(c.parent.granted)
	c.remote = false
	k.remotes = slices.DeleteFunc(k.remotes, func(r *cgroup) bool { return r == c })
	k.taken = k.taken.without(cpus)
	k.root.effective = k.root.effective.union(cpus.meet(k.online))
	if c.reason == "" {
		c.kind, c.invalid = member, false
	} else {
		c.invalid = !c.invalid // the kernel negates the state: an invalid partition becomes valid
	}
	c.reset()
	k.spreadRoot()
}

// resize gives a remote partition other CPUs, or ends it.
func (l linux612) resize(k *Kernel, c *cgroup, cpus set) {
	added, removed := cpus.without(c.granted), c.granted.without(cpus)
	switch {
	case cpus.empty():
		c.reason = noCPUs
	case !added.empty() && (added.overlaps(k.taken) || k.root.effective.subsetOf(added)):
		c.reason = noneLeft
	default:
		k.taken = k.taken.union(added).without(removed)
		k.root.effective = k.root.effective.without(added).union(removed.meet(k.online))
		k.spreadRoot()
		return
	}
	l.endRemote(k, c)
}

// endRemotes ends the remote partitions that have CPUs which the cgroup above them
// loses.
func (l linux612) endRemotes(k *Kernel, above *cgroup, granted set) {
	lost := above.granted.without(granted)
	if !lost.overlaps(k.taken) {
		return
	}
	for _, c := range slices.Clone(k.remotes) {
		if c.effective.overlaps(lost) {
			l.endRemote(k, c)
		}
	}
}

// unusable reports whether a partition cannot have the CPUs, and notes why.
func (l linux612) unusable(k *Kernel, c *cgroup, cpus set, mayBeEmpty bool) bool {
	switch {
	case mayBeEmpty && cpus.empty():
		c.reason = badCPUs
	case k.starves(c, cpus):
		c.reason = noneLeft
	default:
		return false
	}
	return true
}

func (linux612) granted(c *cgroup) set { return c.named().meet(c.parent.granted) }
