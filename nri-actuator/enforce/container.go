// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
)

// Container is a container of the runtime, or a cgroup that Adopt found.
type Container struct {
	ID string
	// Name is "namespace/pod/container", for logs and errors.
	Name       string
	References claims.Container
	// Pinned is the cpuset that the container came with from another program.
	Pinned  contract.CPUSet
	Cgroups Cgroups
	Life    Life
	// lastValid are the decisions that were last found valid.
	lastValid map[contract.Key]contract.Decision
	trouble   trouble
}

// Cgroups has the cgroups of a container and its pod, below the mount. An empty
// path has an error that says why it is unknown.
type Cgroups struct {
	Dir, Pod       string
	DirErr, PodErr error
}

// Life is what the runtime and the cgroups have shown of a container.
type Life struct {
	// Started reports whether the container was started. If its cgroup is gone
	// then, it does not come back.
	Started bool
	// Answered reports whether this actuator answered the creation with the
	// whole decision, since the runtime last listed its containers.
	Answered bool
	// PodUnlisted reports whether the container has a claim and the runtime did not
	// list its pod. Nothing shows then whether the claim is the pod's, so the
	// container stays as it is.
	PodUnlisted bool
	// adopted reports whether the container was found below kubepods while no
	// runtime was connected. Only its cgroup is known.
	adopted bool
	// pendingPartitionCPUs are the CPUs that the runtime may be making a partition of.
	pendingPartitionCPUs contract.CPUSet
	// removed reports whether the runtime has removed the container. Its cgroup
	// still exists.
	removed bool
	// seen reports whether the cgroup was found. A virtual machine's container
	// has none.
	seen bool
	// marked are the wanted contents if the files and marks of the cgroup had them when the marks were last read or, in a pool
	// container's cgroup, last written; nil if not.
	marked contract.Files
	// lacksCPUs reports whether the container could run on none of its claimed CPUs at the last call with
	// scope.all. substituted reports whether its cgroup may have the pool's CPUs for that reason.
	lacksCPUs, substituted bool
	// throughPod reports whether the kernel refuses writes to the cgroup, and the pod's
	// cgroup has the values instead.
	throughPod bool
}

// trouble is what was reported about a container, so that it is reported once.
type trouble struct {
	// refused is the text of the last refusal. kept is the reason why the container keeps the
	// last known decision. Both are empty for none.
	refused, kept string
	// waits is why the created container does not have its values yet, empty if it has them.
	waits string
	// invalid is the kernel's reason why the cgroup is no partition. tried is
	// the time of the last try to make it one.
	invalid string
	tried   time.Time
	// lacksCPUs reports whether the log has that the container can run on none of its claimed CPUs.
	lacksCPUs bool
}

// NamesClaim reports whether the container refers to the contract.
func (c *Container) NamesClaim() bool { return c.References.NamesClaim() }

// Decision returns the decision of the container's claims, as it was last found
// valid.
func (c *Container) Decision() contract.Decision { return contract.Merge(c.lastValid) }

// waits reports whether the container has a claim and was not started: its
// guard may be waiting for the decision in its cgroup.
func (c *Container) waits() bool { return c.NamesClaim() && !c.Life.Started && !c.Life.PodUnlisted }

// resume takes over what is known about the container.
func (c *Container) resume(before *Container) {
	if before == nil {
		return
	}
	c.lastValid, c.trouble = before.lastValid, before.trouble
	c.Life.Started, c.Life.seen = c.Life.Started || before.Life.Started, before.Life.seen
	c.Life.pendingPartitionCPUs = before.Life.pendingPartitionCPUs
	c.Life.throughPod = before.Life.throughPod
	c.Life.lacksCPUs, c.Life.substituted = before.Life.lacksCPUs, before.Life.substituted
}
