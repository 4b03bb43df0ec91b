// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// The runtime goes on without an answer that is late, and without the plugin after an
// answer that is larger than a message (4 MiB). A runtime before NRI 0.12.5 goes on
// without the plugin after a late answer, too. So each answer leaves in time and bounded,
// whatever a pod's author wrote and whatever the kernel is busy with.

var (
	// errOver answers a call of a lost connection. The runtime does not read
	// the answer.
	errOver = errors.New("the connection is over")
	// errLate answers a call that could not be worked on in time.
	errLate = errors.New("nri-actuator is busy with another container: a write into a cgroup takes long (see its log); kubelet tries again")
)

// margin divides a call's time. One part is left for the way of the answer.
const margin = 4

// inTime does the work of a runtime's call under the lock. It returns errLate
// when one quarter of the call's time is left. Work that ends later is undone
// by undo, also under the lock; undo may be nil. A call without a deadline may
// take any time.
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

// underLock runs do under the lock. The error is errLate if wait ends before
// the lock is free, and errOver if the session has ended.
func underLock[T any](wait, ctx context.Context, s *Session, do func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if err := s.lockAndDrain(wait); err != nil {
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

// runtimeError returns the error for the runtime. The actuator gives the runtime no
// other text.
func runtimeError(c *enforce.Container, err error) error {
	text := fmt.Sprintf("cpumem: container %s: %s", c.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
	return errors.New(contract.Excerpt(text, maxAnswer))
}

// createLate answers the creation of a container without a claim while the lock
// is held: the container gets the pool of the last known node state (I7).
func (s *Session) createLate(ctx context.Context, c *enforce.Container) *api.ContainerAdjustment {
	logs.From(ctx).Warn("created with the last known pool: another container's write takes long", zap.String("container", c.Name))
	s.later(func(context.Context) { s.enforcer.FindOrAdd(c) })
	d, ok := s.enforcer.LastPool(c)
	if !ok {
		return nil
	}
	return adjustToPool(d)
}

// updateLate answers an update of a container without a claim while the lock is
// held.
func (s *Session) updateLate(c *enforce.Container) []*api.ContainerUpdate {
	d, ok := s.enforcer.LastPool(c)
	if !ok {
		return nil
	}
	return []*api.ContainerUpdate{update(c.ID, d)}
}

// inbox has the work of calls that could not get the lock, in the order of the
// calls: no call is worked on before the runtime's list that came before it.
type inbox struct {
	mu   sync.Mutex
	work []func(context.Context)
}

func (i *inbox) put(do func(context.Context)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.work = append(i.work, do)
}

func (i *inbox) drain() []func(context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	work := i.work
	i.work = nil
	return work
}

// later leaves work for the next holder of the lock, and makes Apply due soon.
func (p *Plugin) later(do func(context.Context)) {
	p.inbox.put(do)
	p.due.after(waitingPeriod, func() { p.due.apply = true })
}

// lockAndDrain takes the lock, and does the work of calls that could not get it.
func (p *Plugin) lockAndDrain(ctx context.Context) error {
	if err := p.lock.acquire(ctx); err != nil {
		return err
	}
	for _, do := range p.inbox.drain() {
		do(context.WithoutCancel(ctx))
	}
	return nil
}
