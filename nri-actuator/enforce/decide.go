// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// decide returns the decision that holds for the container. The error says why
// its claims are refused. The decision has only the pool's CPUs then: a
// container without a valid claim must keep off claimed CPUs (I1). A decision
// without a version is for a container that stays as it is: another program has
// pinned it, or its CPUs may be its claim's.
func (e *Enforcer) decide(ctx context.Context, c *Container, node contract.NodeState) (contract.Decision, error) {
	pool := claims.Effective(nil, node.SharedOf(c.Asked.PodUID))
	switch {
	case c.Life.Kept, c.Life.adopted && e.backed(c, node):
		return contract.Decision{}, nil
	case !c.Claims() && e.foreign(c, node.Shared):
		return contract.Decision{}, nil
	case !c.Claims():
		return pool, nil
	}
	held, err := e.Directory.ForContainer(node, c.Asked)
	refused := errors.As(err, new(*claims.Refusal))
	if err != nil && c.held != nil && (!refused || !e.fresh) {
		// The frontend took nothing back: a file cannot be read, or the node
		// file is gone with it, as when the whole directory is.
		logs.From(ctx).Error("keeping the last known decision", zap.String("container", c.Name), zap.Error(err))
		held, err = c.held, nil
	}
	if err == nil {
		c.held, c.trouble.refused = held, ""
		return claims.Effective(held, node.SharedOf(c.Asked.PodUID)), nil
	}
	e.refuse(ctx, c, err)
	if !refused && c.Place.Dir != "" && (e.isPartition(c) || c.Life.Started && e.fresh && e.backed(c, node)) {
		// A file cannot be read, and the frontend took nothing back (I4).
		return contract.Decision{}, err
	}
	return contract.Decision{V: contract.Version, CPUs: pool.CPUs}, err
}

// refuse logs and counts a refusal, once while it stays the same.
func (e *Enforcer) refuse(ctx context.Context, c *Container, err error) {
	c.held = nil
	if c.trouble.refused == err.Error() {
		return
	}
	c.trouble.refused = err.Error()
	reason := "unreadable"
	if refusal := (*claims.Refusal)(nil); errors.As(err, &refusal) {
		reason = refusal.Reason
	}
	e.Metrics.Refused(reason)
	logs.From(ctx).Error("container's claim refused", zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
}

// foreign reports whether another program has pinned the container to unmanaged
// CPUs, and the container is on them. If it was moved off them, it may be on
// claimed CPUs (I1).
func (e *Enforcer) foreign(c *Container, s contract.Shared) bool {
	if !pinnedWithin(c.Pinned, s.UnmanagedCPUs) {
		return false
	}
	if c.Place.Dir == "" {
		return true
	}
	now, err := e.Mount.ReadCPUs(c.Place.Dir, tree.FileCPUs)
	return err != nil || pinnedWithin(now, s.UnmanagedCPUs)
}

// pinnedWithin reports whether a container with these CPUs is pinned, to
// unmanaged CPUs only.
func pinnedWithin(cpus, unmanaged contract.CPUSet) bool {
	return !cpus.IsEmpty() && cpus.IsSubsetOf(unmanaged)
}

// backed reports whether a container may stay where it is: it is a partition,
// or its CPUs are all in its pod's part of the pool or in its pod's claims. It
// also stays if a claim file cannot be read (I4).
func (e *Enforcer) backed(c *Container, node contract.NodeState) bool {
	if len(node.Pods[c.Asked.PodUID].Claims) == 0 {
		return false
	}
	if e.isPartition(c) {
		return true
	}
	claimed, err := e.Directory.CPUsOf(node, c.Asked.PodUID)
	if err != nil {
		return true
	}
	has, err := e.Mount.ReadCPUs(c.Place.Dir, tree.FileCPUs)
	if err != nil || has.IsEmpty() {
		return err != nil
	}
	return has.IsSubsetOf(node.SharedOf(c.Asked.PodUID).CPUs.Union(claimed))
}

// holdings returns what each container has of the node. partitions reports
// whether a container may be a partition.
func (e *Enforcer) holdings(ctx context.Context, node contract.NodeState, partitions bool) []tree.Holding {
	var holdings []tree.Holding
	for _, c := range e.known.sorted() {
		d, _ := e.decide(ctx, c, node)
		h := tree.Holding{
			Dir: c.Place.Dir, PodDir: c.Place.Pod, PodUID: c.Asked.PodUID,
			Decision: d, Claimed: !c.Decision().CPUs.IsEmpty(),
		}
		if partitions {
			h.Partition = e.partition(c)
		}
		if !c.Life.Started {
			h.Partition = h.Partition.Union(c.Life.partition)
		}
		holdings = append(holdings, h)
	}
	return holdings
}
