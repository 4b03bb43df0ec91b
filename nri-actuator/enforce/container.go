// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"cmp"
	"maps"
	"slices"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
)

// Container is a container of the runtime, or a cgroup that Adopt found.
type Container struct {
	ID string
	// Name is "namespace/pod/container", for logs and errors.
	Name  string
	Asked claims.Container
	// Pinned is the cpuset that the container came with from another program.
	Pinned contract.CPUSet
	Place  Place
	Life   Life
	// held are the decisions that were last found valid.
	held    map[contract.Key]contract.Decision
	trouble trouble
}

// Place has the cgroups of a container and its pod, below the mount. An empty
// path has an error that says why it is unknown.
type Place struct {
	Dir, Pod       string
	DirErr, PodErr error
}

// Life is what the runtime and the cgroups have shown of a container.
type Life struct {
	// Started reports whether the container was started. If its cgroup is gone
	// then, it does not come back.
	Started bool
	// Answered reports whether this actuator answered the creation with the
	// whole decision.
	Answered bool
	// Kept reports whether the container has a claim and the runtime did not
	// list its pod. Nothing shows then whether the claim is the pod's, so the
	// container stays as it is.
	Kept bool
	// adopted reports whether the container was found below kubepods while no
	// runtime was connected. Only its cgroup is known.
	adopted bool
	// brought reports whether the container was created with its values, or got
	// them.
	brought bool
	// partition are the CPUs that the runtime may be making a partition of.
	partition contract.CPUSet
	// seen reports whether the cgroup was found. A virtual machine's container
	// has none.
	seen bool
}

// trouble is what was reported about a container, so that it is reported once.
type trouble struct {
	// refused is the last refusal.
	refused string
	// invalid is the kernel's reason why the cgroup is no partition. tried is
	// the time of the last try to make it one.
	invalid string
	tried   time.Time
}

// Claims reports whether the container refers to the contract.
func (c *Container) Claims() bool { return c.Asked.Claims() }

// Decision returns the decision of the container's claims, as it was last found
// valid.
func (c *Container) Decision() contract.Decision { return contract.Merge(c.held) }

// waits reports whether the container has a claim and was not started: its
// guard may be waiting for the decision in its cgroup.
func (c *Container) waits() bool { return c.Claims() && !c.Life.Started && !c.Life.Kept }

// resume takes over what is known about the container.
func (c *Container) resume(before *Container) {
	if before == nil {
		return
	}
	c.held, c.trouble = before.held, before.trouble
	c.Life.Started, c.Life.seen = c.Life.Started || before.Life.Started, before.Life.seen
	// An answered creation does not mean that the runtime had the answer.
	c.Life.Answered = before.Life.Answered && c.Life.Started
	c.Life.brought, c.Life.partition = before.Life.brought, before.Life.partition
}

// known are the containers by id.
type known struct {
	all map[string]*Container
	// created and removed are containers of calls before the runtime's list,
	// which may be older than these calls. They are nil while there is a list.
	created, removed map[string]bool
}

// unlisted begins to wait for the runtime's list.
func (k *known) unlisted() {
	if k.created == nil {
		k.created, k.removed = make(map[string]bool), make(map[string]bool)
	}
}

func (k *known) add(c *Container) {
	k.all[c.ID] = c
	if k.created != nil {
		k.created[c.ID] = true
	}
}

func (k *known) removedByRuntime(id string) {
	if k.removed != nil {
		k.removed[id] = true
	}
}

// replace takes over the runtime's list.
func (k *known) replace(list []*Container) {
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
func (k *known) sorted() []*Container {
	return slices.SortedFunc(maps.Values(k.all), func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
}

// byDir returns the containers by the directories of their cgroups.
func (k *known) byDir() map[string]*Container {
	dirs := make(map[string]*Container, len(k.all))
	for _, c := range k.all {
		if c.Place.Dir != "" {
			dirs[c.Place.Dir] = c
		}
	}
	return dirs
}
