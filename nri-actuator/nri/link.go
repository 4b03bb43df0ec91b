// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// busyAfter is how long the lock may be held before the actuator announces itself as
// disconnected: the time that runtimes give a plugin by default. stuckAfter is how long
// before the liveness probe fails: only a new process can help.
const (
	busyAfter  = 2 * time.Second
	stuckAfter = time.Minute
)

// link is the connection to the runtime, and the content of the announcement.
// It has a mutex of its own, which is not held while a file is read or written:
// readiness and the announcement must not wait for a write that the kernel
// keeps.
type link struct {
	mu        sync.Mutex
	session   *Session
	connected bool
	// reason is why no runtime is connected.
	reason string
	// announcement has no values that only the daemon knows.
	announcement contract.Announcement
	// writing orders the writes of the announcement.
	writing sync.Mutex
}

func (l *link) current(s *Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session == s
}

func (l *link) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected
}

// connectedSession returns the session that took over the runtime's containers, or nil.
func (l *link) connectedSession() *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected {
		return nil
	}
	return l.session
}

// setSession makes s the session, nil for none. reason is why no runtime is
// connected, empty to keep the former reason.
func (l *link) setSession(s *Session, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.connected = s, false
	if reason != "" {
		l.reason = contract.Excerpt(reason, maxAnswer)
	}
}

// setReason notes why session s has not synchronised yet. It reports whether s is
// the present session.
func (l *link) setReason(s *Session, reason string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != s {
		return false
	}
	l.reason = reason
	return true
}

// synchronised notes that session s took over the runtime's containers. It
// reports whether s is the present session.
func (l *link) synchronised(s *Session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != s {
		return false
	}
	l.connected, l.reason = true, ""
	return true
}

// change changes the announcement in memory only.
func (l *link) change(change func(*contract.Announcement)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.announcement)
}

// Announce writes the announcement. It is called after each change, and every
// second because a write can fail (a full disk). Nothing depends on its
// success.
func (p *Plugin) Announce(ctx context.Context) {
	p.link.writing.Lock()
	defer p.link.writing.Unlock()
	p.link.mu.Lock()
	says := p.link.announcement
	says.Connected, says.Disconnected = p.link.connected, p.link.reason
	p.link.mu.Unlock()
	if held := p.lock.held(); held > busyAfter {
		says.Connected, says.Disconnected = false, busyFor(held)
	}
	p.Metrics.Connected(says.Connected)
	err := p.Announcer.Set(func(a *contract.Announcement) {
		a.Connected, a.Disconnected = says.Connected, says.Disconnected
		a.SetPlatform(says.Platform())
		a.Kubepods, a.InvalidPartitions, a.Overwritten, a.Generation =
			says.Kubepods, says.InvalidPartitions, says.Overwritten, says.Generation
		a.FixedInterrupts, a.MachineFaults = says.FixedInterrupts, says.MachineFaults
	})
	if err != nil {
		logs.From(ctx).Error("announcement not written; nri-actuator tries again", zap.Error(err))
	}
}

func busyFor(held time.Duration) string {
	return fmt.Sprintf("nri-actuator has been busy for %s: perhaps a write into a cgroup does not return, "+
		"see the kernel's log for blocked tasks", held.Truncate(time.Second))
}

// Ready returns why containers with claims cannot be created, nil if they can.
func (p *Plugin) Ready() error {
	p.link.mu.Lock()
	connected, reason := p.link.connected, p.link.reason
	p.link.mu.Unlock()
	if !connected {
		return fmt.Errorf("not connected to the container runtime: %s", reason)
	}
	if held := p.lock.held(); held > busyAfter {
		return errors.New(busyFor(held))
	}
	if _, err := p.Directory.Node(); err != nil {
		return fmt.Errorf("%w: is dra-frontend running on this node?", err)
	}
	return nil
}

// Misplaced returns an error if containers on this node have claims and the CDI directory has no node file: the frontend that
// prepared these claims has another directory.
func (p *Plugin) Misplaced() error {
	if p.lacksNode.Load() {
		return errors.New("containers on this node have claims, and the CDI directory has no node file: " +
			"is dra-frontend running on this node, and was cdiDir changed while claims were prepared?")
	}
	return nil
}

// Alive returns an error if this process will not recover by itself.
func (p *Plugin) Alive() error {
	if held := p.lock.held(); held > stuckAfter {
		return errors.New(busyFor(held))
	}
	return nil
}
