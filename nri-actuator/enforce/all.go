// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// ApplyAll gives every container, pod and level the values of the present node
// state. A failure of one does not stop the rest. generation is the state's
// generation, and the error says where the state was not applied. Faults of the
// machine's values are not in the error: they are announced by name, and refuse only the
// containers whose claims need these values.
func (e *Enforcer) ApplyAll(ctx context.Context) (generation uint64, err error) {
	node, err := e.node(ctx)
	if err != nil {
		return 0, err
	}
	e.applyMachine(ctx, node)
	for _, c := range e.containers {
		if c.Life.marked == nil || c.waits() { // apply reads a marked container that does not wait, and sees whether it is gone
			e.forgetIfGone(ctx, c)
		}
	}
	r := e.apply(ctx, node, scope{all: true})
	var errs []error
	for _, c := range e.containers {
		err := r[c.Cgroups.Dir]
		delete(r, c.Cgroups.Dir)
		e.noteSubstitute(ctx, c, err)
		switch {
		case c.Cgroups.Dir == "":
			err = e.unknownCgroup(c, node)
		case errors.Is(err, cgroups.ErrGone):
			e.forgetIfGone(ctx, c)
			continue
		case c.waits() && c.trouble.refused == "":
			continue
		case c.Life.Started:
			if lost := e.checkPartition(ctx, c); err == nil && !errors.As(lost, new(*invalid)) && !errors.Is(lost, cgroups.ErrGone) {
				err = lost
			}
		}
		if err == nil {
			continue
		}
		logs.From(ctx).Error("node state not applied", zap.Error(describe(c, err)))
		errs = append(errs, describe(c, err))
	}
	for _, dir := range slices.Sorted(maps.Keys(r)) {
		if err := r[dir]; !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Error("node state not applied", zap.Error(err))
			errs = append(errs, err)
		}
	}
	errs = append(errs, e.unknownPlaces(node)...)
	if e.stale != nil {
		errs = append(errs, fmt.Errorf("the last known node state was applied: %w", e.stale))
	}
	e.Metrics.InvalidPartitions(len(e.Invalid()))
	e.Metrics.Pool(node.PoolCPUs().Size())
	if len(errs) == 0 {
		e.Metrics.Applied(node.Generation)
	}
	return node.Generation, errors.Join(errs...)
}

// unknownPlaces returns the pods and levels that need values and cannot be found.
func (e *Enforcer) unknownPlaces(node contract.NodeState) (errs []error) {
	for _, c := range e.containers {
		if c.Cgroups.Pod == "" && len(node.Pods[c.References.PodUID].Cgroup) > 0 {
			errs = append(errs, fmt.Errorf("pod of container %s: %w", c.Name, c.Cgroups.PodErr))
		}
	}
	if e.HasContainers() && needsLevels(node) && e.podLevels() == nil {
		errs = append(errs, errNoLevels)
	}
	return errs
}
