// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

const (
	// afterUpdate is the time from an answered update to the next Apply. If the
	// update fails, the OCI runtime restores the values that it wrote last.
	// These may be CPUs of a claim by then, and no event reports it.
	afterUpdate = time.Second
	// createdPeriod is how often a container is looked at that was created
	// while no actuator was there. The guard holds the program back until the
	// cgroup has the decision, and no event reports the cgroup.
	createdPeriod = 100 * time.Millisecond
)

// due is work that no event of the runtime or of the directory starts.
type due struct {
	wake chan struct{}

	mu          sync.Mutex
	synchronise func(context.Context) error
	apply       bool
}

func newDue() due { return due{wake: make(chan struct{}, 1)} }

func (d *due) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// after runs change when delay is over, and then wakes [Plugin.Due].
func (d *due) after(delay time.Duration, change func()) {
	time.AfterFunc(delay, func() {
		d.mu.Lock()
		change()
		d.mu.Unlock()
		d.signal()
	})
}

// Due returns the channel that receives when [Plugin.CatchUp] has work.
func (p *Plugin) Due() <-chan struct{} { return p.due.wake }

// CatchUp does the due work: a synchronisation that had to wait, Apply after an
// update, and containers that the guard holds back.
func (p *Plugin) CatchUp(ctx context.Context) error {
	p.due.mu.Lock()
	synchronise, apply := p.due.synchronise, p.due.apply
	p.due.synchronise, p.due.apply = nil, false
	p.due.mu.Unlock()
	var errs []error
	if synchronise != nil {
		if err := synchronise(ctx); !errors.Is(err, errOver) {
			errs = append(errs, err)
		}
		p.Announce(ctx)
	}
	if apply {
		return errors.Join(append(errs, p.Apply(ctx))...)
	}
	if err := p.enter(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer p.lock.release()
	p.bringCreated(ctx)
	return errors.Join(errs...)
}

// waits reports whether the container has a claim and was not started: its
// guard may be waiting for the decision in its cgroup.
func (c *container) waits() bool { return c.claims && !c.started && !c.kept }

// bringCreated gives containers their decisions as soon as their cgroups exist,
// if they were created without the actuator's answer, because no actuator was
// there or the answer came too late. The runtime may be writing its own values
// into such a cgroup, so it is looked at until the container starts.
func (p *Plugin) bringCreated(ctx context.Context) {
	waiting := false
	for _, c := range p.sorted() {
		if !c.waits() {
			continue
		}
		waiting = true
		if c.dirErr != nil || !p.Tree.Exists(c.dir) {
			continue
		}
		if err := p.bringOne(ctx, c); err != nil && !errors.Is(err, cgroups.ErrGone) {
			logs.From(ctx).Debug("created container waits", zap.String("container", c.name), zap.Error(err))
		}
	}
	if waiting {
		p.due.after(createdPeriod, func() {})
	}
}

// bringOne writes in the order of a creation: the pool gives the CPUs up before
// the container gets them, and the program starts when it has them (I1).
func (p *Plugin) bringOne(ctx context.Context, c *container) error {
	node, fresh, err := p.node(ctx)
	if err != nil || !fresh {
		return errors.Join(err, errors.New("the node state cannot be read"))
	}
	d, want, err := p.decide(ctx, c, node)
	if err != nil || want == nil {
		return err
	}
	has, err := p.Tree.ReadCPUs(c.dir, "cpuset.cpus")
	if err == nil && has == d.CPUs && c.adjusted {
		// The runtime writes the answer itself.
		return nil
	}
	if err != nil || has != d.CPUs {
		if err := p.clear(ctx, cpusOutsidePartitions(c.held), node); err != nil {
			return err
		}
	}
	p.learnLevels(c)
	if err := p.writeAbove(ctx, c, node); err != nil {
		return err
	}
	if err := p.write(ctx, c, want); err != nil {
		return err
	}
	return p.checkPartition(ctx, c)
}

// clear moves every pool container off cpus before a claim gets them. A claim
// without CPUs of the pool has none to clear.
func (p *Plugin) clear(ctx context.Context, cpus contract.CPUSet, node contract.NodeState) error {
	if cpus.IsEmpty() {
		return nil
	}
	// I1: the frontend takes CPUs out of the pool before it gives them to a
	// claim.
	if cpus.Overlaps(node.Shared.CPUs) {
		return errInPool(cpus, node)
	}
	return p.shrinkPool(ctx, node)
}
