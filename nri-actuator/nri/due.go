// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"sync"
	"time"
)

const (
	// afterUpdate is the time from an answered update, or from work after an update that failed, to the next Apply. If the
	// update fails, the OCI runtime restores the values that it wrote last.
	// These may be CPUs of a claim by then, and no event reports it.
	afterUpdate = time.Second
	// waitingPeriod is how often a container is looked at that was created
	// while no actuator was there. The guard holds the program back until the
	// cgroup has the decision, and no event reports the cgroup.
	waitingPeriod = 100 * time.Millisecond
)

// due is work that no event of the runtime or of the directory starts.
type due struct {
	wake chan struct{}

	mu    sync.Mutex
	apply bool
	// looking reports whether a look at waiting containers is due.
	looking bool
}

func newDue() due { return due{wake: make(chan struct{}, 1)} }

// after runs change when delay is over, and then wakes [Plugin.Due].
func (d *due) after(delay time.Duration, change func()) {
	time.AfterFunc(delay, func() {
		d.mu.Lock()
		change()
		d.mu.Unlock()
		select {
		case d.wake <- struct{}{}:
		default:
		}
	})
}

// look makes one look at waiting containers due, however often it is called before.
func (d *due) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.looking {
		return
	}
	d.looking = true
	d.after(waitingPeriod, func() { d.looking = false })
}

// Due returns the channel that receives when [Plugin.CatchUp] has work.
func (p *Plugin) Due() <-chan struct{} { return p.due.wake }

// CatchUp does the due work: it runs Apply after an update or after a call that could not
// get the lock, and otherwise looks at the containers that the guard holds back.
func (p *Plugin) CatchUp(ctx context.Context) error {
	p.due.mu.Lock()
	apply := p.due.apply
	p.due.apply = false
	p.due.mu.Unlock()
	if apply {
		return p.Apply(ctx)
	}
	if err := p.lockAndDrain(ctx); err != nil {
		return err
	}
	defer p.lock.release()
	p.lookAtWaiting(ctx)
	return nil
}

// lookAtWaiting gives the containers that the guard may hold back their values, and makes
// the next look due while there are any.
func (p *Plugin) lookAtWaiting(ctx context.Context) {
	if p.enforcer.ApplyWaiting(ctx) {
		p.due.look()
	}
}
