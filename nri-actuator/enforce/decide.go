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

// lookUp returns the container's decision from the frontend's files, completed from
// the shared pool. If a claim is refused, lookUp returns the reason and a decision
// with only the shared pool's CPUs: a container without a valid claim must not run on
// claimed CPUs (I1). A decision without a version means that the container stays as it
// is: another program pinned it, the runtime did not list its pod, or its CPUs may
// belong to its pod's claims.
func (e *Enforcer) lookUp(ctx context.Context, c *Container, node contract.NodeState) (contract.Decision, error) {
	pool := claims.Effective(nil, node.SharedOf(c.References.PodUID))
	switch {
	case c.Life.PodUnlisted, c.Life.adopted && e.mayStay(c, node):
		return contract.Decision{}, nil
	case !c.NamesClaim() && e.onUnmanagedCPUs(c, node.Shared):
		return contract.Decision{}, nil
	case c.Life.adopted && len(node.Pods[c.References.PodUID].Claims) > 0:
		// Without the runtime it is not known whether the container has one of its pod's claims: its other values stay.
		return contract.Decision{V: contract.Version, CPUs: pool.CPUs}, nil
	case !c.NamesClaim():
		return pool, nil
	}
	held, err := e.Directory.ForContainer(node, c.References)
	refused := errors.As(err, new(*claims.Refusal))
	switch {
	case err == nil:
		c.trouble.kept = ""
	case c.lastValid != nil && (!refused || e.stale != nil):
		// The frontend has not withdrawn the decision: a claim file or the node file
		// cannot be read, or the frontend is newer than this actuator.
		if c.trouble.kept != err.Error() {
			c.trouble.kept = err.Error()
			logs.From(ctx).Error("keeping the last known decision", zap.String("container", c.Name), zap.Error(err))
		}
		held, err = c.lastValid, nil
	}
	if err == nil {
		c.lastValid, c.trouble.refused = held, ""
		return claims.Effective(held, node.SharedOf(c.References.PodUID)), nil
	}
	e.noteRefusal(ctx, c, err)
	if !refused && (e.isPartition(c) || c.Life.Started && e.mayStay(c, node)) {
		// The frontend has not withdrawn the decision: a claim file cannot be read, or
		// this actuator is older than the frontend that wrote it (I4).
		return contract.Decision{}, err
	}
	return contract.Decision{V: contract.Version, CPUs: pool.CPUs}, err
}

// Reasons beside [claims.Reasons]: the frontend may back the claim, but this actuator
// cannot apply it.
const (
	reasonUnreadable = "unreadable" // a claim file cannot be read
	reasonFeature    = "feature"    // this actuator is older than the frontend
)

// noteRefusal forgets the last valid decision, and logs and counts the refusal, once while
// it stays the same. It counts no refusal if the claim was valid before, and the claim file is gone or the node state does not list
// the claim for the pod: the claim was released, because the container has ended. The runtime may
// report the end later.
func (e *Enforcer) noteRefusal(ctx context.Context, c *Container, err error) {
	wasValid := c.lastValid != nil
	c.lastValid = nil
	if c.trouble.refused == err.Error() {
		return
	}
	c.trouble.refused = err.Error()
	reason := reasonUnreadable
	if errors.Is(err, contract.ErrUnknownFeature) {
		reason = reasonFeature
	}
	if refusal := (*claims.Refusal)(nil); errors.As(err, &refusal) {
		reason = refusal.Reason
	}
	if wasValid && (reason == claims.ReasonUnbacked || reason == claims.ReasonNotListed) {
		logs.From(ctx).Info("claim released before its container is gone", zap.String("container", c.Name), zap.String("id", c.ID))
		return
	}
	e.Metrics.Refused(reason)
	logs.From(ctx).Error("container's claim refused", zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
}

// onUnmanagedCPUs reports whether another program has pinned the container to unmanaged
// CPUs, and the container is on them. If it was moved off them, it may be on
// claimed CPUs (I1).
func (e *Enforcer) onUnmanagedCPUs(c *Container, s contract.Shared) bool {
	if !pinnedWithin(c.Pinned, s.UnmanagedCPUs) {
		return false
	}
	if c.Cgroups.Dir == "" {
		return true
	}
	now, err := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs)
	return err != nil || pinnedWithin(now, s.UnmanagedCPUs)
}

// pinnedWithin reports whether a container with these CPUs is pinned, to
// unmanaged CPUs only.
func pinnedWithin(cpus, unmanaged contract.CPUSet) bool {
	return !cpus.IsEmpty() && cpus.IsSubsetOf(unmanaged)
}

// mayStay reports whether a container may stay where it is: it is a partition,
// or its CPUs are all in its pod's part of the pool or in its pod's claims. It
// also stays if a claim file cannot be read (I4).
func (e *Enforcer) mayStay(c *Container, node contract.NodeState) bool {
	if len(node.Pods[c.References.PodUID].Claims) == 0 {
		return false
	}
	if e.isPartition(c) {
		return true
	}
	claimed, err := e.Directory.CPUsOf(node, c.References.PodUID)
	if err != nil {
		return true
	}
	has, err := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs)
	if err != nil || has.IsEmpty() {
		return err != nil
	}
	return has.IsSubsetOf(node.SharedOf(c.References.PodUID).CPUs.Union(claimed))
}

// hasNothingToDo reports whether a call leaves a container without a claim as it is: the scope does not cover the container, or
// the container has the CPUs of its decision d (I1), and the marks show that an actuator wrote them. If the runtime wrote the CPUs,
// the container is looked at, because systemd may have other CPUs. Only a call with scope.all compares its other files.
func (e *Enforcer) hasNothingToDo(c *Container, d contract.Decision, s scope) bool {
	switch {
	case s.all, c == s.own, c.NamesClaim(), s.takesFrom(c):
		return false
	case !s.pool:
		return true
	case c.Life.marked[tree.FileCPUs] != d.CPUs.String():
		return false
	}
	has, err := e.Mount.ReadKept(c.Cgroups.Dir, tree.FileCPUs)
	return err == nil && has == d.CPUs.String()
}

// holdings returns what each container has of the node. partitions reports
// whether a container may be a partition. If partitions is false, containers that the call leaves as they are
// ([Enforcer.hasNothingToDo]) are left out.
func (e *Enforcer) holdings(ctx context.Context, node contract.NodeState, s scope, partitions bool) []tree.Holding {
	var holdings []tree.Holding
	usable := make(map[string]contract.CPUSet)
	for _, c := range e.containers {
		d, _ := e.lookUp(ctx, c, node)
		switch {
		case d.V == "":
			c.Life.marked = nil // its files are not read
		case !partitions && e.hasNothingToDo(c, d, s):
			continue
		}
		h := tree.Holding{
			Dir: c.Cgroups.Dir, PodDir: c.Cgroups.Pod, PodUID: c.References.PodUID,
			Decision: d, Claimed: !c.Decision().CPUs.IsEmpty(),
		}
		if h.Claimed {
			h.Substitute = e.substitute(c, d, node, s, usable)
		}
		if partitions {
			h.PartitionCPUs = e.partitionCPUs(c)
		}
		if !c.Life.Started {
			h.PartitionCPUs = h.PartitionCPUs.Union(c.Life.pendingPartitionCPUs)
		}
		holdings = append(holdings, h)
	}
	return holdings
}
