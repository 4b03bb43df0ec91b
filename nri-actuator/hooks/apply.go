// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
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

// apply gives every container, pod and ancestor the values of the present node
// state. One that fails keeps none of the others from getting theirs. The
// generation is that of the state applied, with an error if not everywhere.
func (p *Plugin) apply(ctx context.Context) (generation uint64, err error) {
	node, fresh, err := p.node(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	type decided struct {
		*container
		want    map[string]string
		refused error
	}
	var all []decided
	for _, c := range p.sorted() {
		// A container that is over has nothing to be refused: its claim may be
		// released before the runtime says that it stopped.
		if p.settle(ctx, c) {
			continue
		}
		_, want, refused := p.decide(ctx, c, node)
		if refused != nil && want != nil {
			if err := p.endPartition(c); err != nil {
				errs = append(errs, fmt.Errorf("container %s: %w", c.name, err))
			}
		}
		all = append(all, decided{c, want, refused})
	}
	// I1: the pool leaves CPUs before a claim gets them. And a partition can be made
	// again only when no cgroup beside it names its CPUs.
	slices.SortStableFunc(all, func(a, b decided) int { return cmp.Compare(a.rank(), b.rank()) })
	// Before the containers: a partition takes its CPUs from what is above it.
	if err := p.writeTree(ctx, node); err != nil {
		logs.From(ctx).Error("apply", zap.Error(err))
		errs = append(errs, err)
	}
	for _, d := range all {
		c, refused := d.container, d.refused
		if refused == nil && c.waits() {
			// The guard lets its program start as soon as its cgroup has the
			// decision: bringCreated writes it, in the order of a creation.
			continue
		}
		err := p.write(ctx, c, d.want)
		switch {
		case errors.As(err, new(*invalid)):
			// Named when it was found, and not for the others to wait for.
		case errors.Is(err, cgroups.ErrGone):
			p.settle(ctx, c)
		case err != nil:
			err = fmt.Errorf("container %s: %w", c.name, err)
			logs.From(ctx).Error("apply", zap.Error(err))
			// A container with a claim that is not obeyed has been named.
			if refused == nil {
				errs = append(errs, err)
			}
		}
	}
	if !fresh {
		errs = append(errs, errors.New("the node state could not be read, the last known one was applied"))
	}
	p.Metrics.InvalidPartitions(len(p.invalidPartitions()))
	if cpus, err := contract.ParseList(node.Shared.CPUs); err == nil {
		p.Metrics.Applied(node.Generation, len(cpus))
	}
	return node.Generation, errors.Join(errs...)
}

// rank orders containers that are brought to one node state.
func (c *container) rank() int {
	switch {
	case c.pooled():
		return 0
	case c.partition == "":
		return 1
	}
	return 2
}

// shrinkPool brings every container that draws on the shared pool to its
// present CPUs, before a container with exclusive ones is created (I1). A
// container that cannot be moved fails the creation, one without a cgroup gets
// its values when it starts.
func (p *Plugin) shrinkPool(ctx context.Context, node contract.NodeState) error {
	for _, c := range p.sorted() {
		_, want, _ := p.decide(ctx, c, node)
		if !c.pooled() {
			continue
		}
		err := p.write(ctx, c, want)
		if errors.Is(err, cgroups.ErrGone) {
			p.settle(ctx, c)
			continue
		}
		if err != nil {
			return fmt.Errorf("container %s (id %s) could not be moved off exclusive CPUs: %w", c.name, c.id, err)
		}
	}
	return nil
}

// settle forgets a container whose cgroup is gone for good, and reports whether
// it did. A container without a cgroup of its own is forgotten when the runtime
// removes it.
func (p *Plugin) settle(ctx context.Context, c *container) (over bool) {
	if !c.started || c.dirErr != nil {
		return false
	}
	exists := p.Tree.Exists(c.dir)
	c.seen = c.seen || exists
	if over = c.seen && !exists; over {
		p.forget(ctx, c)
	}
	return over
}

// removed notes a container that a list of the runtime may still have.
func (p *Plugin) removed(id string) {
	if p.link.isConnected() {
		return
	}
	if p.gone == nil {
		p.gone = make(map[string]bool)
	}
	p.gone[id] = true
}

func (p *Plugin) forget(ctx context.Context, c *container) {
	delete(p.containers, c.id)
	p.forgetUnit(ctx, c.dir)
}

// sorted returns the containers in the order of their ids (I8).
func (p *Plugin) sorted() []*container {
	all := slices.Collect(maps.Values(p.containers))
	slices.SortFunc(all, func(a, b *container) int { return cmp.Compare(a.id, b.id) })
	return all
}
