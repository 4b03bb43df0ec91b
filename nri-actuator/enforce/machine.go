// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/machine"
)

// applyMachine gives the machine the values of the node state that no cgroup has. It logs
// a fault once while it stays the same.
func (e *Enforcer) applyMachine(ctx context.Context, node contract.NodeState) []machine.Fault {
	before := e.machine.Faults
	e.machine = e.Host.Apply(node.Machine)
	for _, fault := range e.machine.Faults {
		if !slices.ContainsFunc(before, func(f machine.Fault) bool { return f.Err.Error() == fault.Err.Error() }) {
			logs.From(ctx).Error("value of the machine not written", zap.String("feature", fault.Feature), zap.Error(fault.Err))
		}
	}
	return e.machine.Faults
}

// PrepareMachine gives the machine the values that the container's decision requires. The container exists, and its creation was
// not answered.
func (e *Enforcer) PrepareMachine(ctx context.Context, c *Container) error {
	node, err := e.node(ctx)
	if err != nil {
		return err
	}
	return e.prepareMachine(ctx, node, c.Decision())
}

// prepareMachine gives the machine the values that a container's decision requires, before
// the container's program runs (I5).
func (e *Enforcer) prepareMachine(ctx context.Context, node contract.NodeState, d contract.Decision) error {
	if !slices.ContainsFunc(d.Requires, func(f string) bool { return slices.Contains(contract.MachineFeatures(), f) }) {
		return nil
	}
	var errs []error
	for _, fault := range e.applyMachine(ctx, node) {
		if fault.Concerns(d) {
			errs = append(errs, fmt.Errorf("its claim requires %q: %w", fault.Feature, fault.Err))
		}
	}
	return errors.Join(errs...)
}
