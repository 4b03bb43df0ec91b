// SPDX-License-Identifier: Apache-2.0

// Package kerneltest is a model of the cgroup v2 hierarchy of a Linux kernel, as far as
// this driver and the programs beside it on a node use the hierarchy: cpusets with
// remote partitions, memory values, hugetlb values, processes, attributes, and CPUs
// that go offline. The model is compared with real kernels, operation by operation
// (test/kernel/compare). Tests run the actuator's code on the model; no program imports
// it.
//
// The model leaves out: partitions right below the root, partitions below
// partitions, cgroups below a partition, partitions that shall have no CPU, the last CPU
// of a partition that goes offline, CPUs of isolcpus, threaded cgroups. Such an operation
// returns [ErrOutside].
package kerneltest

import (
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"
)

// ErrOutside is the error of an operation that the model leaves out.
var ErrOutside = errors.New("the model leaves this out")

// Kernel is a machine's cgroup hierarchy. Errors of its methods are those of the
// system call: a [syscall.Errno], or [ErrOutside].
type Kernel struct {
	release Release
	// cpus are all CPUs of the machine, online the CPUs that are online.
	cpus, online set
	// values are the files with amounts.
	values map[string]valueFile
	root   *cgroup
	// taken are the CPUs that the kernel has recorded as a remote partition's.
	taken set
	// remotes are the remote partitions, the newest first.
	remotes []*cgroup
	// lastID is the id of the newest cgroup.
	lastID uint64
	damage string
}

// cgroup is one cgroup.
type cgroup struct {
	dir string
	// id is a number that no other cgroup has or had. The root's is 0.
	id       uint64
	parent   *cgroup
	children []*cgroup // in the order of their creation
	// enabled are the controllers of the children.
	enabled    map[string]bool
	processes  int
	values     map[string]string
	attributes map[string]string

	// cpus, exclusive and mems are what programs have written.
	cpus, exclusive, mems set
	// effective, granted and effectiveMems are cpuset.cpus.effective,
	// cpuset.cpus.exclusive.effective and cpuset.mems.effective.
	effective, granted, effectiveMems set
	kind                              partitionKind
	// invalid reports whether a partition is invalid, reason is why.
	invalid bool
	reason  string
	// remote reports whether the kernel counts the cgroup among the remote
	// partitions. Linux 6.12 also counts some invalid partitions.
	remote bool
	// strict reports whether no sibling may name a CPU of the cgroup.
	strict bool
}

// New returns the kernel of a machine, with all CPUs online. The root cgroup has all
// controllers.
func New(release Release, m Machine) *Kernel {
	cpus := listOf(m.CPUs...)
	return &Kernel{release: release, cpus: cpus, online: cpus, values: m.values(), root: &cgroup{
		enabled: map[string]bool{}, kind: root, cpus: cpus, effective: cpus, granted: cpus,
		mems: listOf(m.Nodes...), effectiveMems: listOf(m.MemoryNodes...),
	}}
}

// Damage returns the operation that has damaged the kernel's own data, empty if none
// has: such a kernel may do anything.
func (k *Kernel) Damage() string { return k.damage }

// Lost returns the CPUs that neither the root cgroup nor a partition can use.
func (k *Kernel) Lost() string {
	lost := k.online.without(k.root.effective)
	for _, c := range k.remotes {
		if c.valid() {
			lost = lost.without(c.effective)
		}
	}
	return lost.String()
}

func (k *Kernel) find(dir string) (*cgroup, error) {
	c := k.root
	if dir == "" || dir == "." {
		return c, nil
	}
	for name := range strings.SplitSeq(dir, "/") {
		i := slices.IndexFunc(c.children, func(c *cgroup) bool { return path.Base(c.dir) == name })
		if i < 0 {
			return nil, syscall.ENOENT
		}
		c = c.children[i]
	}
	return c, nil
}

// Dirs returns all cgroups below the root, parents first.
func (k *Kernel) Dirs() []string {
	var dirs []string
	k.root.walk(func(c *cgroup) bool {
		if c != k.root {
			dirs = append(dirs, c.dir)
		}
		return true
	})
	return dirs
}

// walk calls visit with the cgroup and its descendants, parents first. It leaves out
// the descendants of a cgroup for which visit returns false.
func (c *cgroup) walk(visit func(*cgroup) bool) {
	if !visit(c) {
		return
	}
	for _, child := range c.children {
		child.walk(visit)
	}
}

// Mkdir makes a cgroup.
func (k *Kernel) Mkdir(dir string) error {
	parent, err := k.find(path.Dir(dir))
	if err != nil {
		return err
	}
	if _, err := k.find(dir); err == nil {
		return syscall.EEXIST
	}
	if parent != k.root && parent.kind != member {
		return ErrOutside
	}
	k.lastID++
	c := &cgroup{
		dir: dir, id: k.lastID, parent: parent, enabled: map[string]bool{}, values: map[string]string{}, attributes: map[string]string{},
		effective: parent.effective, effectiveMems: parent.effectiveMems,
	}
	parent.children = append(parent.children, c)
	return nil
}

// Rmdir removes a cgroup.
func (k *Kernel) Rmdir(dir string) error {
	c, err := k.find(dir)
	switch {
	case err != nil:
		return err
	case c == k.root || len(c.children) > 0 || c.processes > 0:
		return syscall.EBUSY
	}
	if c.valid() {
		k.release.rules.setPartition(k, c, member)
	}
	if c.remote {
		k.damage = "an invalid partition was removed: " + dir
		k.remotes = slices.DeleteFunc(k.remotes, func(r *cgroup) bool { return r == c })
	}
	c.parent.children = slices.DeleteFunc(c.parent.children, func(other *cgroup) bool { return other == c })
	return nil
}

// Attach moves a process into the cgroup.
func (k *Kernel) Attach(dir string) error {
	c, err := k.find(dir)
	switch {
	case err != nil:
		return err
	case len(c.enabled) > 0:
		return syscall.EBUSY
	case c.effective.empty():
		return syscall.ENOSPC
	}
	c.processes++
	return nil
}

// Detach ends a process of the cgroup.
func (k *Kernel) Detach(dir string) error {
	c, err := k.find(dir)
	if err != nil {
		return err
	}
	if c.processes == 0 {
		return syscall.ESRCH
	}
	c.processes--
	return nil
}

// populated reports whether the cgroup or a descendant has a process.
func (c *cgroup) populated() (found bool) {
	c.walk(func(d *cgroup) bool {
		found = found || d.processes > 0
		return !found
	})
	return found
}

// has reports whether the cgroup has the controller's files.
func (c *cgroup) has(controller string) bool {
	return c.parent == nil || c.parent.enabled[controller]
}

// Attributes returns the extended attributes of the cgroup. The map is the cgroup's own.
func (k *Kernel) Attributes(dir string) (map[string]string, error) {
	c, err := k.find(dir)
	if err != nil {
		return nil, err
	}
	return c.attributes, nil
}

// ID returns the id of the cgroup, which differs from the ids of all cgroups that had its name before.
func (k *Kernel) ID(dir string) (uint64, error) {
	c, err := k.find(dir)
	if err != nil {
		return 0, err
	}
	return c.id, nil
}

// Processes returns the number of processes of the cgroup.
func (k *Kernel) Processes(dir string) int {
	c, err := k.find(dir)
	if err != nil {
		return 0
	}
	return c.processes
}
