// SPDX-License-Identifier: Apache-2.0

// Package nri speaks NRI: it turns each call of the container runtime into a
// question or an order to package enforce, and answers in time and bounded. It
// knows what a runtime can apply, and no other rule. The list of containers comes from the runtime at each
// connection (I4).
package nri

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/enforce"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// Announcer changes the announcement.
type Announcer interface {
	Set(change func(*contract.Announcement)) error
}

// Plugin answers the runtime's calls. One lock orders the calls and the
// frontend's changes. A call waits for the lock only as long as the runtime
// waits for the call.
type Plugin struct {
	Options
	enforcer *enforce.Enforcer
	lock     *lock
	link     link
	inbox    inbox
	due      due
	// lacksNode is what the enforcer reported last.
	lacksNode atomic.Bool
}

// Options are the parts of a Plugin. All are required.
type Options struct {
	enforce.Options
	Announcer Announcer
}

// New returns a plugin without containers. A [Session] brings the containers.
func New(o Options) *Plugin {
	p := &Plugin{Options: o, enforcer: enforce.New(o.Options), lock: newLock(o.Clock), due: newDue()}
	p.link.reason = "no connection was made yet"
	return p
}

// Session is the plugin for one connection to a runtime. The calls of a session that has
// ended change nothing, however late they come. Only the work that a call has left for
// later is done all the same: its container may run.
type Session struct {
	*Plugin
	nriVersion func() string
	// runtime has the runtime's name and version from Configure.
	runtime atomic.Pointer[contract.Platform]
}

var (
	_ stub.ConfigureInterface           = (*Session)(nil)
	_ stub.SynchronizeInterface         = (*Session)(nil)
	_ stub.CreateContainerInterface     = (*Session)(nil)
	_ stub.StartContainerInterface      = (*Session)(nil)
	_ stub.UpdateContainerInterface     = (*Session)(nil)
	_ stub.PostUpdateContainerInterface = (*Session)(nil)
	_ stub.StopContainerInterface       = (*Session)(nil)
	_ stub.RemoveContainerInterface     = (*Session)(nil)
)

// NewSession begins a session and ends the former one. nriVersion is called
// after the runtime has introduced itself.
func (p *Plugin) NewSession(nriVersion func() string) *Session {
	s := &Session{Plugin: p, nriVersion: nriVersion}
	s.runtime.Store(&contract.Platform{})
	p.link.setSession(s, "")
	return s
}

// Disconnected ends the session. reason is why the connection was lost.
func (p *Plugin) Disconnected(ctx context.Context, reason string) {
	p.link.setSession(nil, reason)
	p.Announce(ctx)
}

// Configured reports whether the runtime has introduced itself.
func (s *Session) Configured() bool { return s.runtime.Load().Runtime != "" }

// Synchronised reports whether the session took over the runtime's containers.
func (s *Session) Synchronised() bool { return s.link.current(s) && s.link.isConnected() }

// Configure names the events that the actuator wants.
func (s *Session) Configure(ctx context.Context, _, name, version string) (api.EventMask, error) {
	if !s.link.setReason(s, "the runtime has not listed its containers yet: containerd lists them only while no container is being stopped") {
		return 0, errOver
	}
	s.runtime.Store(&contract.Platform{Runtime: name, RuntimeVersion: version})
	logs.From(ctx).Info("runtime connected", zap.String("runtime", name), zap.String("version", version))
	var mask api.EventMask
	mask.Set(api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER,
		api.Event_POST_UPDATE_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	return mask, nil
}

// Synchronize takes over the runtime's containers and gives every running one
// its decision again. A bad container is logged and does not fail the call,
// because the runtime drops a plugin that fails here. If the work takes longer
// than the runtime waits, the runtime gets its answer in time and the work goes
// on.
func (s *Session) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) (_ []*api.ContainerUpdate, err error) {
	defer s.count("Synchronize", time.Now(), func() metrics.Outcome { return outcome(err, len(containers) > 0) })
	list := s.containersOf(pods, containers)
	_, err = inTime(ctx, s, func(ctx context.Context) (struct{}, error) {
		s.synchronize(ctx, list)
		return struct{}{}, nil
	}, nil)
	if errors.Is(err, errLate) {
		logs.From(ctx).Warn("the runtime's containers are taken over later: it takes longer than the runtime waits")
		s.later(func(ctx context.Context) {
			if s.link.current(s) && !s.link.isConnected() {
				s.synchronize(ctx, list)
			}
		})
		return nil, nil
	}
	s.announceInTime(ctx)
	return nil, err
}

// announceInTime announces. It waits for the disk no longer than the runtime
// waits for an answer.
func (s *Session) announceInTime(ctx context.Context) {
	written := make(chan struct{})
	go func() {
		s.Announce(context.WithoutCancel(ctx))
		close(written)
	}()
	timeout := make(<-chan time.Time)
	if deadline, limited := ctx.Deadline(); limited {
		timer := time.NewTimer(time.Until(deadline) / margin)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-written:
	case <-timeout:
	}
}

// containersOf returns the containers of the runtime's list. A container that has stopped
// counts until its cgroup is gone (I1).
func (s *Session) containersOf(pods []*api.PodSandbox, containers []*api.Container) []*enforce.Container {
	sandboxes := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		sandboxes[pod.GetId()] = pod
	}
	var list []*enforce.Container
	for _, ctr := range containers {
		c := s.read(sandboxes[ctr.GetPodSandboxId()], ctr)
		if ctr.GetState() == api.ContainerState_CONTAINER_STOPPED && !s.enforcer.HasCgroup(c) {
			continue
		}
		c.Life.Started = ctr.GetState() != api.ContainerState_CONTAINER_CREATED
		list = append(list, c)
	}
	return list
}

func (s *Session) synchronize(ctx context.Context, list []*enforce.Container) {
	s.enforcer.Replace(ctx, list)
	generation, err := s.enforcer.ApplyAll(ctx)
	s.enforcer.ProbePartitions(ctx)
	if !s.link.synchronised(s) {
		return
	}
	platform := s.platform()
	s.link.change(func(a *contract.Announcement) {
		a.SetPlatform(platform)
		s.fillAnnouncement(a)
		if err == nil {
			a.Generation = generation
		}
	})
	s.lookAtWaiting(ctx)
}

// remembered is how long a content of another program is announced at least
// after it was last seen. Kubelet writes every minute.
const remembered = 10 * time.Minute

// fillAnnouncement puts into the announcement what the frontend cannot see.
func (p *Plugin) fillAnnouncement(a *contract.Announcement) {
	p.enforcer.FillAnnouncement(a, p.Clock().Add(-max(remembered, 3*p.RefreshInterval)))
	p.lacksNode.Store(p.enforcer.LacksNode())
}

// Apply brings everything that runs to the present node state, and repairs
// drift. It is called when the CDI directory changes. While no runtime is
// connected, it does so for the known containers.
func (p *Plugin) Apply(ctx context.Context) error {
	return p.applyAll(ctx, func() {})
}

// Refresh is Apply for changes without an event. While no runtime is connected,
// it also finds the containers that were created meanwhile.
func (p *Plugin) Refresh(ctx context.Context) error {
	return p.applyAll(ctx, func() {
		if !p.link.isConnected() {
			p.enforcer.Adopt(ctx)
		}
	})
}

func (p *Plugin) applyAll(ctx context.Context, first func()) error {
	if err := p.lockAndDrain(ctx); err != nil {
		return err
	}
	first()
	var generation uint64
	var platform contract.Platform
	var err error
	session := p.link.connectedSession()
	if session != nil || p.enforcer.HasContainers() {
		generation, err = p.enforcer.ApplyAll(ctx)
	}
	if session != nil {
		p.enforcer.ProbePartitions(ctx)
		platform = session.platform()
	}
	p.link.change(func(a *contract.Announcement) {
		p.fillAnnouncement(a)
		if session != nil && p.link.session == session {
			a.SetPlatform(platform)
		}
		if session != nil && err == nil {
			a.Generation = generation
		}
	})
	p.lookAtWaiting(ctx)
	p.lock.release()
	p.Announce(ctx)
	return err
}

func (p *Plugin) count(hook string, start time.Time, result func() metrics.Outcome) {
	p.Metrics.Call(hook, result(), start)
}

func outcome(err error, acted bool) metrics.Outcome {
	switch {
	case err != nil:
		return metrics.Failed
	case acted:
		return metrics.Success
	}
	return metrics.Noop
}

// Halt ends all work for good, before another actuator may begin: the work of
// an answered call may go on. Halt waits until ctx ends for a write that the
// kernel keeps.
func (p *Plugin) Halt(ctx context.Context) error {
	if err := p.lock.acquire(ctx); err != nil {
		return fmt.Errorf("%s; the next nri-actuator may begin before this work has ended", busyFor(p.lock.held()))
	}
	return nil
}
