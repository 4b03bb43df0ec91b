// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Create does what must be done before a container with a claim exists, and
// returns the container's decision. An error fails the creation. check refuses
// a decision that the runtime cannot apply.
func (e *Enforcer) Create(ctx context.Context, c *Container, check func(contract.Decision) error) (contract.Decision, error) {
	node, _ := e.node(ctx)
	if e.stale != nil {
		return contract.Decision{}, fmt.Errorf(
			"%w: the container waits until dra-frontend has written the node file; is dra-frontend running on this node?", e.stale)
	}
	e.ProbePartitions(ctx)
	d, err := e.lookUp(ctx, c, node)
	if err == nil {
		err = check(d)
	}
	if err != nil {
		return contract.Decision{}, err
	}
	// A decision may have such a partition without requiring the feature: the runtime would make the partition.
	if lack := e.lacksIsolated(d); lack != "" {
		return contract.Decision{}, fmt.Errorf("its claim has an isolated partition, which this node cannot make: %s: delete the pod", lack)
	}
	if err := e.prepareMachine(ctx, node, d); err != nil {
		return contract.Decision{}, err
	}
	if err := e.makeRoom(ctx, c, node, true); err != nil {
		return contract.Decision{}, err
	}
	c.Life.Answered = true
	return d, nil
}

// makeRoom prepares the node for the container's values: no pool container is on its
// CPUs (I1), and its pod and the levels have their values. needsCPUs reports whether
// the container lacks its CPUs.
func (e *Enforcer) makeRoom(ctx context.Context, c *Container, node contract.NodeState, needsCPUs bool) error {
	s := scope{above: c}
	if d := c.Decision(); d.Partition != "" {
		c.Life.pendingPartitionCPUs = d.CPUs
	}
	if cpus := outsidePartitions(c); needsCPUs && !cpus.IsEmpty() {
		// I1: the frontend takes CPUs out of the pool before it gives them to a
		// claim.
		if cpus.Overlaps(node.Shared.CPUs) {
			return fmt.Errorf("its CPUs %s are also in the shared pool %s (%s, generation %d): "+
				"the container waits until dra-frontend has written the node state",
				cpus, node.Shared.CPUs, contract.NodeFile, node.Generation)
		}
		s.pool = true
	}
	pod := node.Pods[c.References.PodUID]
	needsPod := len(pod.Cgroup) > 0 || !pod.PartitionCPUs.IsEmpty()
	r := e.apply(ctx, node, s)
	if err := e.checkMoved(ctx, node, s, r); err != nil {
		return err
	}
	if err := e.aboveResult(ctx, c, node, r, needsPod); err != nil {
		return err
	}
	return e.checkAbove(c)
}

// checkMoved returns an error if a container may still be on claimed CPUs. r is the result of the apply to the scope s. An error
// about a removed container is only logged. A container whose cgroup is gone for good is forgotten.
func (e *Enforcer) checkMoved(ctx context.Context, node contract.NodeState, s scope, r result) error {
	for _, c := range e.containers {
		var err error
		if c.Cgroups.Dir != "" {
			err = r[c.Cgroups.Dir]
		} else if s.pool && c.Decision().CPUs.IsEmpty() {
			err = e.unknownCgroup(c, node)
		}
		switch {
		case err == nil:
		case errors.Is(err, cgroups.ErrGone):
			e.forgetIfGone(ctx, c)
		case c.Life.removed:
			// The runtime has removed the container, and a process that cannot die may keep its
			// cgroup. The container must not keep claims from the node.
			logs.From(ctx).Warn("cgroup of a removed container not written", zap.Error(describe(c, err)))
		default:
			return fmt.Errorf("container %s (id %s) could not be moved off claimed CPUs: %w", c.Name, c.ID, err)
		}
	}
	return nil
}

// makeRoomIfUnanswered makes room for a container that was created without this actuator's answer,
// before it gets its CPUs: the pool gives them up first (I1).
func (e *Enforcer) makeRoomIfUnanswered(ctx context.Context, c *Container, node contract.NodeState) error {
	if c.Life.Answered || outsidePartitions(c).IsEmpty() {
		return nil
	}
	if has, err := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs); err == nil && has == c.Decision().CPUs {
		return nil
	}
	return e.makeRoom(ctx, c, node, true)
}

// unknownCgroup returns why the container's cgroup is not known, nil if it is known or if
// the container stays where it is.
func (e *Enforcer) unknownCgroup(c *Container, node contract.NodeState) error {
	if c.Cgroups.Dir != "" || !c.NamesClaim() && e.onUnmanagedCPUs(c, node.Shared) {
		return nil
	}
	return c.Cgroups.DirErr
}

// checkAbove returns an error unless the cgroups above the container name the
// CPUs of its partition: another pod may still have them.
func (e *Enforcer) checkAbove(c *Container) error {
	d := c.Decision()
	if d.Partition == "" {
		return nil
	}
	above, err := e.above(c.Cgroups.Pod)
	if err != nil {
		return err
	}
	if err := tree.NamedAbove(d.CPUs, above); err != nil {
		return fmt.Errorf("%w: the container waits until another pod gives these CPUs back", err)
	}
	return nil
}

// above returns the CPUs that the cgroup of a pod and the cgroups above it name in
// cpuset.cpus.exclusive, by directory.
func (e *Enforcer) above(podDir string) (map[string]contract.CPUSet, error) {
	above := make(map[string]contract.CPUSet)
	for dir := podDir; dir != "."; dir = path.Dir(dir) {
		named, err := e.Mount.ReadCPUs(dir, contract.FileExclusive)
		if err != nil {
			return nil, err
		}
		above[dir] = named
	}
	return above, nil
}

// errNoLevels means that values of levels cannot be written.
var errNoLevels = errors.New("no known pod is below a kubepods cgroup: the values of the QoS levels cannot be written")

// needsLevels reports whether levels need values.
func needsLevels(node contract.NodeState) bool {
	return len(node.Ancestors)+len(node.PartitionCPUs) > 0
}

// aboveResult returns the errors of the levels and of the container's pod. needsPod
// reports whether the pod needs values. A missing level has no pods and is no error.
// Errors of other pods are only logged: if their CPUs block this container, the kernel
// refuses one of its writes.
func (e *Enforcer) aboveResult(ctx context.Context, c *Container, node contract.NodeState, r result, needsPod bool) error {
	if needsLevels(node) && e.podLevels() == nil {
		return errNoLevels
	}
	if c.Cgroups.Pod == "" && needsPod {
		return fmt.Errorf("its pod: %w", c.Cgroups.PodErr)
	}
	if err := r[c.Cgroups.Pod]; err != nil && (needsPod || !errors.Is(err, cgroups.ErrGone)) {
		return fmt.Errorf("its pod: %w", err)
	}
	for _, dir := range e.levels() {
		if err := r[dir]; err != nil && !errors.Is(err, cgroups.ErrGone) {
			return err
		}
	}
	for dir, err := range r {
		if cgroups.PodUID(dir) != "" && !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Warn("the values of another pod were not written: it may keep partition CPUs that this container needs", zap.Error(err))
		}
	}
	return nil
}

// outsidePartitions returns the CPUs that the container's decisions take out of
// the shared pool: their CPUs without partition CPUs.
func outsidePartitions(c *Container) contract.CPUSet {
	var all contract.CPUSet
	for _, d := range c.lastValid {
		if d.Partition == "" {
			all = all.Union(d.CPUs)
		}
	}
	return all
}

// ApplyWaiting gives containers their decisions as soon as their cgroups exist, if
// they were created without the actuator's answer, because no actuator was there
// or the answer came too late. The runtime may be writing its own values into
// such a cgroup, so it is looked at until the container starts. waiting reports
// whether there is such a container.
func (e *Enforcer) ApplyWaiting(ctx context.Context) (waiting bool) {
	for _, c := range e.containers {
		if !c.waits() {
			continue
		}
		waiting = true
		if !e.HasCgroup(c) {
			// Its creation may have failed, and the next container of its claim may have the partition.
			c.trouble.invalid = ""
			continue
		}
		e.noteWait(ctx, c, e.applyWaiting(ctx, c))
	}
	return waiting
}

// noteWait logs why a container waits, once while the reason stays the same: the guard refuses the container after a while, and its
// message names this log.
func (e *Enforcer) noteWait(ctx context.Context, c *Container, err error) {
	if err == nil || errors.Is(err, cgroups.ErrGone) {
		c.trouble.waits = ""
		return
	}
	if c.trouble.waits != err.Error() {
		c.trouble.waits = err.Error()
		logs.From(ctx).Warn("created container waits", zap.String("container", c.Name), zap.String("id", c.ID), zap.Error(err))
	}
}

// applyWaiting writes in the order of a creation: the pool gives the CPUs up
// before the container gets them, and the program starts when it has them (I1).
func (e *Enforcer) applyWaiting(ctx context.Context, c *Container) error {
	node, _ := e.node(ctx)
	if e.stale != nil {
		return e.stale
	}
	d, err := e.lookUp(ctx, c, node)
	if err != nil || d.V == "" {
		return err
	}
	if c.Life.Answered && e.hasFiles(c, d) {
		// The runtime writes the answer itself, unless the answer came too late.
		return nil
	}
	// If the CPUs cannot be read, has is empty and differs from the decision, which always has CPUs.
	has, _ := e.Mount.ReadCPUs(c.Cgroups.Dir, tree.FileCPUs)
	if err := e.prepareMachine(ctx, node, d); err != nil {
		return err
	}
	if err := e.makeRoom(ctx, c, node, has != d.CPUs); err != nil {
		return err
	}
	if err := e.apply(ctx, node, scope{own: c})[c.Cgroups.Dir]; err != nil {
		return err
	}
	return e.checkPartition(ctx, c)
}

// hasFiles reports whether the container's cgroup has the contents of the decision.
func (e *Enforcer) hasFiles(c *Container, d contract.Decision) bool {
	want := tree.ContainerFiles(d)
	contents, err := e.Mount.KeptContents(c.Cgroups.Dir, slices.Collect(maps.Keys(want))...)
	return err == nil && hasAll(contents, want)
}
