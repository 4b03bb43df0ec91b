// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"fmt"
	"slices"
	"syscall"
)

func (k *Kernel) cpusetFiles(c *cgroup) map[string]file {
	files := map[string]file{
		"cpuset.cpus.effective": {read: func() string { return c.effective.String() }},
		"cpuset.mems.effective": {read: func() string { return c.effectiveMems.String() }},
	}
	if c == k.root {
		return files
	}
	files["cpuset.cpus"] = file{
		read: func() string { return c.cpus.String() },
		write: func(content string) error {
			return k.writeList(c, content, k.cpus, func(c *cgroup, s set) error { return k.release.rules.setCPUs(k, c, s) })
		},
	}
	files["cpuset.mems"] = file{
		read:  func() string { return c.mems.String() },
		write: func(content string) error { return k.writeList(c, content, k.root.mems, k.setMems) },
	}
	files["cpuset.cpus.partition"] = file{read: c.partition, write: func(content string) error { return k.writePartition(c, content) }}
	if k.release.exclusive {
		files["cpuset.cpus.exclusive"] = file{
			read: func() string { return c.exclusive.String() },
			write: func(content string) error {
				return k.writeList(c, content, first(capacity), func(c *cgroup, s set) error { return k.release.rules.setExclusive(k, c, s) })
			},
		}
		files["cpuset.cpus.exclusive.effective"] = file{read: func() string { return c.granted.String() }}
	}
	return files
}

// writeList calls write with the members of a list, which must be in possible.
func (k *Kernel) writeList(c *cgroup, content string, possible set, write func(*cgroup, set) error) error {
	s, err := parse(content)
	if err != nil {
		return err
	}
	if !s.subsetOf(possible) {
		return syscall.EINVAL
	}
	return write(c, s)
}

// partition returns the content of cpuset.cpus.partition.
func (c *cgroup) partition() string {
	switch {
	case !c.invalid:
		return c.kind.String()
	case c.reason == "":
		return fmt.Sprintf("%s invalid", c.kind)
	}
	return fmt.Sprintf("%s invalid (%s)", c.kind, c.reason)
}

// named returns the CPUs that the cgroup asks for as a partition.
func (c *cgroup) named() set { return c.exclusive.orIfEmpty(c.cpus) }

func (k *Kernel) setMems(c *cgroup, mems set) error {
	if mems == c.mems {
		return nil
	}
	trial := *c
	trial.mems = mems
	if err := k.release.rules.allowed(k, c, trial); err != nil {
		return err
	}
	c.mems = mems
	c.walk(func(d *cgroup) bool {
		d.effectiveMems = d.mems.meet(d.parent.effectiveMems).orIfEmpty(d.parent.effectiveMems)
		return true
	})
	return nil
}

// spreadRoot spreads a change of the root's effective CPUs.
func (k *Kernel) spreadRoot() {
	for _, c := range k.root.children {
		if c.cpus.meet(k.root.effective) != c.effective {
			k.release.rules.spread(k, c, false)
		}
	}
}

// SetOnline takes a CPU offline, or brings it back.
func (k *Kernel) SetOnline(cpu int, online bool) error {
	now := k.online.without(listOf(cpu))
	if online {
		now = now.union(listOf(cpu))
	}
	if now == k.online {
		return nil
	}
	if !online && k.alone(cpu) {
		return ErrOutside // the answer depends on the accounts of the deadline scheduler
	}
	k.online = now
	effective := now.without(k.taken)
	if effective.empty() {
		// The partitions compete for the CPUs again.
		k.taken, effective = set{}, now
	}
	k.root.effective = effective
	for _, child := range k.root.children {
		child.walk(func(c *cgroup) bool {
			k.plug(c)
			return true
		})
	}
	return nil
}

// plug computes a cgroup's effective CPUs after a CPU has come or gone.
func (k *Kernel) plug(c *cgroup) {
	effective := c.cpus.meet(c.parent.effective)
	if c.remote {
		effective = k.release.rules.granted(c).meet(k.online)
		if effective.empty() && c.populated() {
			c.reason = hotplug
			k.release.rules.endRemote(k, c)
			effective = c.cpus.meet(c.parent.effective)
		}
	}
	if !c.valid() {
		effective = effective.orIfEmpty(c.parent.effective)
	}
	c.effective = effective
}

// alone reports whether the CPU is the last one of the root or of a partition.
func (k *Kernel) alone(cpu int) bool {
	return k.root.effective == listOf(cpu) || slices.ContainsFunc(k.remotes, func(c *cgroup) bool { return c.effective == listOf(cpu) })
}
