// SPDX-License-Identifier: Apache-2.0

package kerneltest

// Release is what differs between kernels.
type Release struct {
	Name string
	// exclusive reports whether cgroups have cpuset.cpus.exclusive, and partitions
	// may have a parent that is none (since Linux 6.7).
	exclusive bool
	rules     rules
	// keepsInvalid reports whether an invalid partition stays invalid, for the same reason,
	// until it has become a member.
	keepsInvalid bool
	// emptyReason is the reason of a partition that names no CPU.
	emptyReason string
}

// rules are a kernel's rules for CPUs. They keep no state.
type rules interface {
	// allowed returns an error unless the siblings and processes of the cgroup c
	// allow what trial has.
	allowed(k *Kernel, c *cgroup, trial cgroup) error
	setCPUs(k *Kernel, c *cgroup, cpus set) error
	setExclusive(k *Kernel, c *cgroup, cpus set) error
	// setPartition makes a cgroup a partition or a member. A partition that the
	// kernel refuses is invalid.
	setPartition(k *Kernel, c *cgroup, kind partitionKind)
	// endRemote gives the CPUs of a remote partition back to the root.
	endRemote(k *Kernel, c *cgroup)
	// granted returns the CPUs that a partition can have at this moment.
	granted(c *cgroup) set
	// spread computes the effective CPUs of the cgroup and its descendants. force
	// visits descendants although nothing changes for their parent.
	spread(k *Kernel, start *cgroup, force bool)
}

// The kernels of the model.
var (
	Linux61  = Release{Name: "6.1", rules: linux612{}, keepsInvalid: true, emptyReason: "cpuset.cpus is empty"}
	Linux612 = Release{Name: "6.12", rules: linux612{}, exclusive: true, emptyReason: noCPUs}
	Linux7   = Release{Name: "7", rules: linux7{}, exclusive: true, emptyReason: noCPUs}
)

// HasRemotePartitions reports whether a cgroup can be a partition although its parent
// is none.
func (r Release) HasRemotePartitions() bool { return r.exclusive }

// Releases are all kernels of the model.
func Releases() []Release { return []Release{Linux61, Linux612, Linux7} }
