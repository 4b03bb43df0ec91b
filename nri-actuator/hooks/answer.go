// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/decisions"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// The runtime drops a plugin that does not answer in time, or whose answer is
// larger than a message (4 MiB), and creates containers without it from then on.
// Each answer therefore leaves in time and bounded, whatever a pod's author wrote
// and whatever the kernel is busy with.

var (
	// errOver answers calls of a connection that is lost: the answer is not read.
	errOver = errors.New("the connection is over")
	// errLate answers a call that could not be worked on in time.
	errLate = errors.New("nri-actuator is busy with another container: a write into a cgroup takes long (see its log); kubelet tries again")
)

// margin is the part of a call's time that is left for the answer's way back.
const margin = 4

// inTime does the work of a call of the runtime under the lock, and returns
// errLate a quarter of the call's time before the runtime gives up. Work that
// ends later is undone by undo, under the lock as well; undo may be nil. A call
// without a deadline takes as long as it takes.
func inTime[T any](ctx context.Context, s *Session, do func(ctx context.Context) (T, error), undo func()) (T, error) {
	deadline, limited := ctx.Deadline()
	if !limited {
		return underLock(ctx, ctx, s, do)
	}
	short, cancel := context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/margin))
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var answered atomic.Bool
	go func() {
		value, err := underLock(short, context.WithoutCancel(ctx), s, func(ctx context.Context) (T, error) {
			value, err := do(ctx)
			if !answered.CompareAndSwap(false, true) && undo != nil {
				undo()
			}
			return value, err
		})
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-short.Done():
	}
	if answered.CompareAndSwap(false, true) {
		var none T
		return none, errLate
	}
	r := <-done
	return r.value, r.err
}

// underLock runs do with the lock, which it waits for as long as wait lasts.
func underLock[T any](wait, ctx context.Context, s *Session, do func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if err := s.enter(wait); err != nil {
		return none, errLate
	}
	defer s.lock.release()
	if !s.link.current(s) {
		return none, errOver
	}
	return do(ctx)
}

// maxAnswer bounds an error that leaves through NRI, in bytes.
const maxAnswer = 1 << 10

// refusal is the error as the runtime gets it. No other place of the actuator
// gives the runtime a text.
func refusal(c *container, err error) error {
	text := fmt.Sprintf("cpumem: container %s: %s", c.name, strings.ReplaceAll(err.Error(), "\n", "; "))
	return errors.New(contract.Excerpt(text, maxAnswer))
}

// createLate answers the creation of a container without a claim while the lock
// is not to be had: the container gets the pool of the last known node state
// (I7), and becomes known to the next holder of the lock.
func (s *Session) createLate(ctx context.Context, c *container) *api.ContainerAdjustment {
	logs.From(ctx).Warn("created with the last known pool: another container's write takes long", zap.String("container", c.name))
	d, ok := s.lastPool(c)
	if !ok {
		s.later(event{container: c})
		return nil
	}
	c.applied = files(d)
	s.later(event{container: c})
	return pool(d)
}

// updateLate is the answer to an update of a container without a claim while the
// lock is not to be had.
func (s *Session) updateLate(c *container) []*api.ContainerUpdate {
	d, ok := s.lastPool(c)
	if !ok {
		return nil
	}
	return []*api.ContainerUpdate{update(c.id, d)}
}

// lastPool is what a container without a claim gets at the last known node
// state, ok is false if none is known or the container is pinned to CPUs that
// the driver does not manage.
func (s *Session) lastPool(c *container) (d contract.Decision, ok bool) {
	node := s.last.Load()
	if node == nil {
		return contract.Decision{}, false
	}
	if in, out, err := share(c.pinned, node.Shared.Others); c.pinned != "" && err == nil && len(in) > 0 && len(out) == 0 {
		return contract.Decision{}, false
	}
	return decisions.Effective(nil, node.SharedOf(c.ask.PodUID)), true
}

// event is what a call reported that could not get the lock: a container that was
// created, or started, or is gone.
type event struct {
	container *container
	gone      string
}

// later keeps an event for the next holder of the lock, and has all be brought to
// the node state soon.
func (p *Plugin) later(e event) {
	p.inbox.mu.Lock()
	p.inbox.events = append(p.inbox.events, e)
	p.inbox.mu.Unlock()
	p.due.after(createdPeriod, func() { p.due.apply = true })
}

// enter takes the lock, and takes in what was reported while it was not to be had.
func (p *Plugin) enter(ctx context.Context) error {
	if err := p.lock.acquire(ctx); err != nil {
		return err
	}
	p.inbox.mu.Lock()
	events := p.inbox.events
	p.inbox.events = nil
	p.inbox.mu.Unlock()
	for _, e := range events {
		switch known := p.containers[e.id()]; {
		case e.container == nil:
			// Its program may still end: until its cgroup is gone it is kept off
			// the CPUs of claims.
			if known != nil {
				known.started, known.seen = true, true
				p.settle(ctx, known)
			}
			p.removed(e.gone)
		case known == nil:
			p.containers[e.container.id] = e.container
		default:
			known.started = known.started || e.container.started
		}
	}
	return nil
}

func (e event) id() string {
	if e.container != nil {
		return e.container.id
	}
	return e.gone
}
