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

// apply gives every container, pod and level the values of the present node
// state. A failure of one does not stop the rest. generation is the state's
// generation, and the error says where the state was not applied.
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
		// A container that has ended is not refused: its claim may be released
		// before the runtime reports the stop.
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
	// I1: the pool leaves CPUs before a claim gets them. A partition can be
	// made again only when no cgroup beside it names its CPUs.
	slices.SortStableFunc(all, func(a, b decided) int { return cmp.Compare(a.rank(), b.rank()) })
	// The levels and pods come before the containers: a partition takes its
	// CPUs from the cgroups above it.
	if err := p.writeTree(ctx, node); err != nil {
		logs.From(ctx).Error("apply", zap.Error(err))
		errs = append(errs, err)
	}
	for _, d := range all {
		c, refused := d.container, d.refused
		if refused == nil && c.waits() {
			// The guard lets the program start as soon as its cgroup has the
			// decision. bringCreated writes it, in the order of a creation.
			continue
		}
		err := p.write(ctx, c, d.want)
		switch {
		case errors.As(err, new(*invalid)):
			// An invalid partition was logged when it was found. It does not
			// hold back the announced generation.
		case errors.Is(err, cgroups.ErrGone):
			p.settle(ctx, c)
		case err != nil:
			err = fmt.Errorf("container %s: %w", c.name, err)
			logs.From(ctx).Error("apply", zap.Error(err))
			// A refused claim has been logged.
			if refused == nil {
				errs = append(errs, err)
			}
		}
	}
	if !fresh {
		errs = append(errs, errors.New("the node state could not be read, the last known one was applied"))
	}
	p.Metrics.InvalidPartitions(len(p.invalidPartitions()))
	p.Metrics.Applied(node.Generation, node.Shared.CPUs.Size())
	return node.Generation, errors.Join(errs...)
}

// rank orders the containers for one node state: pool containers first,
// partitions last.
func (c *container) rank() int {
	switch {
	case c.pooled():
		return 0
	case c.partition == "":
		return 1
	}
	return 2
}

// shrinkPool moves every pool container to the pool's present CPUs, before a
// container gets claimed CPUs (I1). A container that cannot be moved is an
// error. A container without a cgroup gets its values when it starts.
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

// settle forgets a container if its cgroup is gone for good, and reports
// whether it did. A container without a cgroup of its own is forgotten when the
// runtime removes it.
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

// removed notes a container that a list of the runtime may have although it is
// gone.
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
