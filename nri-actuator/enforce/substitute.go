// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"path"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// substitute returns the pool's CPUs for a running container that can run on none of its claimed CPUs,
// because they are offline or no longer in kubepods; none for other containers. The kernel would let the
// container run on all CPUs of the cgroup above, which may be other claims' CPUs (I1). A container that was not
// started keeps its claimed CPUs: its guard refuses it. A container with a partition keeps them as well: if
// an invalid partition ends, the kernel can lose its CPUs (seen on Linux 6.12).
//
// Only a call with scope.all finds out whether the CPUs can be used. Between two such calls a container with a
// substitute stays a pool container, because a new claim may take CPUs of the pool. usable has the CPUs
// of the levels that the call has read.
func (e *Enforcer) substitute(
	c *Container, d contract.Decision, node contract.NodeState, s scope, usable map[string]contract.CPUSet,
) contract.CPUSet {
	if !c.Life.Started || d.CPUs.IsEmpty() || d.Partition != "" {
		return contract.CPUSet{}
	}
	if s.all {
		c.Life.lacksCPUs = e.runsOnNone(c, d.CPUs, usable)
		c.Life.substituted = c.Life.substituted || c.Life.lacksCPUs
	}
	if !c.Life.substituted || s.all && !c.Life.lacksCPUs {
		return contract.CPUSet{}
	}
	return node.SharedOf(c.References.PodUID).CPUs
}

// runsOnNone reports whether the container can run on none of the CPUs: neither its level nor its own cgroup
// has one of them. If a file cannot be read, the last answer holds.
func (e *Enforcer) runsOnNone(c *Container, cpus contract.CPUSet, usable map[string]contract.CPUSet) bool {
	if c.Cgroups.Pod == "" {
		return false
	}
	level := path.Dir(c.Cgroups.Pod)
	if _, read := usable[level]; !read {
		usable[level], _ = e.Mount.ReadCPUs(level, tree.FileEffective) // none if unknown
	}
	switch {
	case usable[level].IsEmpty():
		return c.Life.lacksCPUs
	case usable[level].Overlaps(cpus):
		return false
	}
	has, err := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileEffective)
	if err != nil {
		return c.Life.lacksCPUs
	}
	return !has.Overlaps(cpus)
}

// noteSubstitute logs that a container got the pool's CPUs, or its claimed CPUs again. err is what went wrong
// when they were written: after an error the container may still have the pool's CPUs.
func (e *Enforcer) noteSubstitute(ctx context.Context, c *Container, err error) {
	if !c.Life.substituted || err != nil {
		return
	}
	log := logs.From(ctx).With(zap.String("container", c.Name), zap.String("id", c.ID), zap.Stringer("cpus", c.Decision().CPUs))
	switch {
	case !c.Life.lacksCPUs:
		c.Life.substituted, c.trouble.lacksCPUs = false, false
		log.Info("container has its claimed CPUs again")
	case !c.trouble.lacksCPUs:
		c.trouble.lacksCPUs = true
		log.Warn("container runs in the shared pool: none of its claimed CPUs can be used")
	}
}
