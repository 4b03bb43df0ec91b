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
	for _, c := range p.sorted() {
		// A container that is over has nothing to be refused: its claim may be
		// released before the runtime says that it stopped.
		if p.settle(c) {
			continue
		}
		_, want, refused := p.decide(ctx, c, node)
		err := p.write(ctx, c, want)
		switch {
		case errors.Is(err, cgroups.ErrGone):
			p.settle(c)
		case err != nil:
			err = fmt.Errorf("container %s: %w", c.name, err)
			logs.From(ctx).Error("apply", zap.Error(err))
			// A container with a claim that is not obeyed has been named.
			if refused == nil {
				errs = append(errs, err)
			}
		}
	}
	if err := p.writePods(ctx, node); err != nil {
		logs.From(ctx).Error("apply", zap.Error(err))
		errs = append(errs, err)
	}
	if !fresh {
		errs = append(errs, errors.New("the node state could not be read, the last known one was applied"))
	}
	if cpus, err := contract.ParseList(node.Shared.CPUs); err == nil {
		p.metrics.Applied(node.Generation, len(cpus))
	}
	return node.Generation, errors.Join(errs...)
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
			p.settle(c)
			continue
		}
		if err != nil {
			return fmt.Errorf("container %s (id %s) could not be moved off exclusive CPUs: %w", c.name, c.id, err)
		}
	}
	return nil
}

// settle forgets a container whose cgroup is gone for good, and tells whether
// it did.
func (p *Plugin) settle(c *container) (over bool) {
	over = c.started && c.dirErr == nil && !p.tree.Exists(c.dir)
	if over {
		delete(p.containers, c.id)
	}
	return over
}

// writePods writes the values of all known pods and of their ancestors.
func (p *Plugin) writePods(ctx context.Context, node contract.NodeState) error {
	var errs []error
	before := p.shared
	p.shared = make(map[string]contract.Files, len(before))
	done := make(map[string]bool)
	for _, c := range p.sorted() {
		p.learnLevels(c)
		if done[c.ask.PodUID] {
			continue
		}
		done[c.ask.PodUID] = true
		if err := p.writePod(ctx, c, node, before); err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, p.writeAncestors(ctx, node, before))...)
}

// learnLevels finds the QoS levels. Any pod leads to them but those outside of
// kubepods, which other clients of the runtime make.
func (p *Plugin) learnLevels(c *container) {
	if p.levels == nil && c.podErr == nil {
		p.levels, _ = cgroups.Levels(c.podDir)
	}
}

// writePod writes the values of the container's pod.
func (p *Plugin) writePod(ctx context.Context, c *container, node contract.NodeState, before map[string]contract.Files) error {
	want := node.Pods[c.ask.PodUID].Cgroup
	if len(want) == 0 {
		return nil
	}
	if c.podErr != nil {
		return fmt.Errorf("pod of container %s: %w", c.name, c.podErr)
	}
	if err := p.writeShared(ctx, c.podDir, want, before); err != nil {
		return fmt.Errorf("pod of container %s: %w", c.name, err)
	}
	return nil
}

// writeAncestors writes the values of kubepods and of the QoS levels. A level
// that does not exist has no pod in it that could miss them.
func (p *Plugin) writeAncestors(ctx context.Context, node contract.NodeState, before map[string]contract.Files) error {
	var errs []error
	for _, level := range slices.Sorted(maps.Keys(node.Ancestors)) {
		want := node.Ancestors[level]
		if len(want) == 0 {
			continue
		}
		if p.levels == nil {
			if len(p.containers) == 0 {
				return nil
			}
			return errors.New("no known pod is below a kubepods cgroup: the memory protection of the QoS levels cannot be written")
		}
		if err := p.writeShared(ctx, p.levels[level], want, before); err != nil && !errors.Is(err, cgroups.ErrGone) {
			errs = append(errs, fmt.Errorf("QoS level %q: %w", level, err))
		}
	}
	return errors.Join(errs...)
}

// writeShared writes to a cgroup that kubelet writes as well. before is what
// was written last.
func (p *Plugin) writeShared(ctx context.Context, dir string, want contract.Files, before map[string]contract.Files) error {
	changed, err := p.tree.Write(dir, want)
	last := before[dir]
	if last == nil {
		last = contract.Files{}
	}
	p.repaired(ctx, dir, changed, last, want)
	if err != nil {
		return err
	}
	p.shared[dir] = want
	return nil
}

// sorted returns the containers in the order of their ids (I8).
func (p *Plugin) sorted() []*container {
	all := slices.Collect(maps.Values(p.containers))
	slices.SortFunc(all, func(a, b *container) int { return cmp.Compare(a.id, b.id) })
	return all
}
