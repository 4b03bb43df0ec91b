// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// LastPool returns the pool of the last known node state for a container without a
// claim. ok is false for a container that stays as it is, and without a node state. It
// needs no order with other calls.
func (e *Enforcer) LastPool(c *Container) (d contract.Decision, ok bool) {
	node := e.last.Load()
	if node == nil || pinnedWithin(c.Pinned, node.Shared.UnmanagedCPUs) {
		return contract.Decision{}, false
	}
	return claims.Effective(nil, node.SharedOf(c.References.PodUID)), true
}

// Current returns the present decision for a container that the runtime creates
// without a claim, or updates. ok is false for a container that stays as it is. Current
// first moves pool containers off the decision's CPUs if this actuator did not answer
// the creation.
func (e *Enforcer) Current(ctx context.Context, c *Container) (d contract.Decision, ok bool, err error) {
	node, err := e.node(ctx)
	if err != nil {
		return contract.Decision{}, false, err
	}
	if d, err = e.lookUp(ctx, c, node); err == nil {
		err = e.makeRoomIfUnanswered(ctx, c, node)
	}
	if e.lacksIsolated(d) != "" {
		d.Partition = "" // the runtime would make the partition
	}
	if c.Life.substituted {
		d.CPUs = node.SharedOf(c.References.PodUID).CPUs
	}
	return d, d.V != "", err
}

// PresentCPUs returns the CPUs that the container's cgroup names, or why they are not
// known.
func (e *Enforcer) PresentCPUs(c *Container) (contract.CPUSet, error) {
	if c.Cgroups.Dir == "" {
		return contract.CPUSet{}, c.Cgroups.DirErr
	}
	return e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs)
}

// ApplyTo gives an existing container its present values. created reports whether
// the container is known to have its values from its creation: then a missing cgroup is no error. acted reports whether there
// was a node state to apply.
func (e *Enforcer) ApplyTo(ctx context.Context, c *Container, created bool) (acted bool, err error) {
	node, err := e.node(ctx)
	switch {
	case err != nil && !c.NamesClaim():
		return false, nil
	case err != nil:
		// I5: nothing shows that the container has its values.
		return false, err
	}
	_, refused := e.lookUp(ctx, c, node)
	if err := e.makeRoomIfUnanswered(ctx, c, node); err != nil {
		return false, errors.Join(refused, err)
	}
	s := scope{own: c}
	if c.Decision().Partition != "" {
		s.above = c
	}
	r := e.apply(ctx, node, s)
	return true, errors.Join(refused, e.aboveResult(ctx, c, node, r, s.above != nil), e.ownResult(ctx, c, r, created))
}

// ownResult returns what went wrong in the container's own cgroup. A cgroup that
// is not where the runtime says (a virtual machine's container) is no error for
// a container that was created with its decision, and for a container without a
// claim. It is an error for a partition: the kernel would keep no container off
// its CPUs.
func (e *Enforcer) ownResult(ctx context.Context, c *Container, r result, created bool) error {
	err := r[c.Cgroups.Dir]
	if c.Cgroups.Dir == "" {
		err = c.Cgroups.DirErr
	}
	if c.Life.Started {
		// The check also follows a failed write, which may be why the partition
		// is lost.
		if lost := e.checkPartition(ctx, c); err == nil {
			err = lost
		}
	}
	if errors.Is(err, cgroups.ErrGone) && (created || !c.NamesClaim()) && c.Decision().Partition == "" {
		logs.From(ctx).Warn("no cgroup", zap.String("container", c.Name), zap.Error(err))
		return nil
	}
	return err
}

// OnClaimed reports whether the container may run on claimed CPUs.
func (e *Enforcer) OnClaimed(c *Container) bool {
	var claimed contract.CPUSet
	for _, other := range e.containers {
		claimed = claimed.Union(outsidePartitions(other))
	}
	if claimed.IsEmpty() {
		return false
	}
	if c.Cgroups.Dir == "" {
		return true
	}
	cpus, err := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs)
	return !errors.Is(err, cgroups.ErrGone) && (err != nil || cpus.IsEmpty() || cpus.Overlaps(claimed))
}
