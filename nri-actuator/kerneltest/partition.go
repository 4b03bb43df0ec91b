// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"syscall"
)

// partitionKind is what a cgroup is or asks to be.
type partitionKind int

const (
	member partitionKind = iota
	root
	isolated
)

func (p partitionKind) String() string { return [...]string{"member", "root", "isolated"}[p] }

// The kernel's reasons for an invalid partition.
const (
	noCPUs       = "cpuset.cpus and cpuset.cpus.exclusive are empty"
	badCPUs      = "Invalid cpu list in cpuset.cpus.exclusive"
	notExclusive = "Cpu list in cpuset.cpus not exclusive"
	notPartition = "Parent is not a partition root"
	noneLeft     = "Parent unable to distribute cpu downstream"
	hotplug      = "No cpu available due to hotplug"
)

func (c *cgroup) valid() bool { return c.kind != member && !c.invalid }

func (k *Kernel) writePartition(c *cgroup, content string) error {
	kinds := map[string]partitionKind{"member": member, "root": root, "isolated": isolated}
	kind, known := kinds[content]
	switch {
	case !known:
		return syscall.EINVAL
	case kind != member && (c.parent == k.root || len(c.children) > 0):
		return ErrOutside
	}
	k.release.rules.setPartition(k, c, kind)
	return nil
}

// starves reports whether processes would have no CPU if the cgroup had the CPUs for
// itself.
func (k *Kernel) starves(c *cgroup, cpus set) bool {
	if !cpus.overlaps(k.online) && c.populated() {
		return true
	}
	if !c.parent.effective.subsetOf(cpus) {
		return false
	}
	found := c.parent.processes > 0
	c.parent.walk(func(d *cgroup) bool {
		switch {
		case d == c.parent:
			return true
		case d != c && d.valid():
			return false
		case d != c && d.populated():
			found = true
		}
		return !found
	})
	return found
}

// reset takes the CPUs of a former partition from the cgroup.
func (c *cgroup) reset() {
	if c.exclusive.empty() {
		c.granted, c.strict = set{}, false
	}
	c.effective = c.cpus.meet(c.parent.effective).orIfEmpty(c.parent.effective)
}
