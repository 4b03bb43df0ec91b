// SPDX-License-Identifier: Apache-2.0

// Package hooks is the NRI plugin: what the actuator does at each call of the
// container runtime, and when the frontend changes the node state. It asks
// package decisions what holds, and puts that into the runtime's answer or,
// through package cgroups, into running containers, pods and their ancestors.
// It keeps no state that is not in files: its list of containers is the
// runtime's, told anew at each connection (I4).
package hooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/decisions"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// Announcer takes what the frontend has to know about the actuator.
type Announcer interface {
	Set(change func(*contract.Announcement)) error
}

// Units has systemd follow what is written into the cgroups of its units, or it
// writes its own values back at its next reload. Nothing waits for systemd.
type Units interface {
	// Set is called before the files of a container are written, and after
	// those of a slice.
	Set(dir string, files map[string]string) error
	// Again forgets that systemd was told: someone else has changed the values.
	Again(dir string)
	// Settled tells whether systemd has all that was Set.
	Settled(dir string) bool
	// Forget is called for cgroups that are gone, or are others' again.
	Forget(dir string) error
	// Reset forgets all but the cgroups dirs, and that these were told.
	Reset(dirs []string) error
}

// Plugin is the actuator's side of the runtime's calls. One mutex orders them
// with the frontend's changes; nothing waits for the runtime while it is held.
type Plugin struct {
	Options

	mu         sync.Mutex
	session    *Session
	connected  bool
	containers map[string]*container
	// last is the node state that was read last. It stands in for a file that
	// cannot be read, for the shared pool only and only while exclusive CPUs
	// are in use (I1).
	last *contract.NodeState
	// fresh tells whether the node state in use was read, and is not last.
	fresh bool
	// levels are the directories of kubepods and the QoS levels.
	levels map[string]string
	// shared is what was written last to cgroups that kubelet writes as well.
	shared map[string]contract.Files
	// overwritten are the values that others wrote over these.
	overwritten overwritten
	// pods are the directories of the known pods.
	pods map[string]bool
	// returned are former values that were given back by directory, until
	// systemd has them.
	returned map[string]map[string]string
	// found tells whether pods that had exclusive CPUs from the actuator before
	// this one were looked for.
	found bool
	// partitions tells whether the kernel makes cpuset partitions below
	// kubepods, nil before it was tried.
	partitions *bool
}

// Options are the parts of a Plugin. All are required.
type Options struct {
	Directory *decisions.Directory
	Tree      *cgroups.Tree
	Metrics   *metrics.Metrics
	Announcer Announcer
	Units     Units
	// Kernel is the kernel's release.
	Kernel string
	// RefreshInterval is how often Apply is called in any case.
	RefreshInterval time.Duration
	Clock           func() time.Time
}

// New returns a plugin without containers; a [Session] brings them.
func New(o Options) *Plugin {
	return &Plugin{Options: o, containers: make(map[string]*container), shared: make(map[string]contract.Files), overwritten: make(overwritten), returned: make(map[string]map[string]string)}
}

// Session is the plugin for one connection to a runtime. A session that was
// ended changes nothing any more, however late its calls come.
type Session struct {
	*Plugin
	nriVersion     func() string
	runtime        string
	runtimeVersion string
	tellsDevices   bool
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

// errOver answers calls of a connection that is lost: nobody reads it.
var errOver = errors.New("cpumem: the connection is over")

// NewSession begins a session and ends the one before. nriVersion is asked
// once the runtime has introduced itself.
func (p *Plugin) NewSession(nriVersion func() string) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = &Session{Plugin: p, nriVersion: nriVersion}
	return p.session
}

// Disconnected ends the session: the connection is lost.
func (p *Plugin) Disconnected() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.connected = nil, false
	p.Metrics.Connected(false)
	return p.Announcer.Set(func(a *contract.Announcement) { a.Connected = false })
}

// Ready tells why containers with claims cannot be created, nil if they can.
func (p *Plugin) Ready() error {
	p.mu.Lock()
	connected := p.connected
	p.mu.Unlock()
	if !connected {
		return errors.New("not connected to the container runtime: is NRI enabled, and its socket mounted?")
	}
	if _, err := p.Directory.Node(); err != nil {
		return fmt.Errorf("%w: is dra-frontend running on this node?", err)
	}
	return nil
}

// Configure names the events the actuator wants.
func (s *Session) Configure(ctx context.Context, _, runtime, version string) (api.EventMask, error) {
	s.mu.Lock()
	s.runtime, s.runtimeVersion = runtime, version
	s.tellsDevices = tellsDevices(runtime, version)
	s.mu.Unlock()
	logs.From(ctx).Info("runtime connected", zap.String("runtime", runtime), zap.String("version", version))
	var mask api.EventMask
	mask.Set(api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_UPDATE_CONTAINER,
		api.Event_POST_UPDATE_CONTAINER, api.Event_STOP_CONTAINER, api.Event_REMOVE_CONTAINER)
	return mask, nil
}

// Synchronize takes the runtime's containers over and gives every running one
// its decision again. It fails for none of them: a bad one is named in the log.
func (s *Session) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) (_ []*api.ContainerUpdate, err error) {
	defer s.observe("Synchronize", time.Now(), func() metrics.Outcome { return outcome(err, len(containers) > 0) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != s {
		return nil, errOver
	}
	sandboxes := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		sandboxes[pod.GetId()] = pod
	}
	s.containers = make(map[string]*container, len(containers))
	s.levels, s.shared, s.found = nil, make(map[string]contract.Files), false
	for _, ctr := range containers {
		if ctr.GetState() == api.ContainerState_CONTAINER_STOPPED {
			continue
		}
		c := s.newContainer(sandboxes[ctr.GetPodSandboxId()], ctr)
		c.started = ctr.GetState() != api.ContainerState_CONTAINER_CREATED
		s.containers[c.id] = c
	}
	var dirs []string
	for _, c := range s.containers {
		dirs = append(dirs, c.dir, c.podDir)
	}
	if err := s.Units.Reset(dirs); err != nil {
		logs.From(ctx).Warn("old drop-ins stay", zap.Error(err))
	}
	logs.From(ctx).Info("synchronising", zap.Int("containers", len(s.containers)))
	generation, _ := s.apply(ctx)
	s.tryPartitions(ctx)
	s.connected = true
	s.Metrics.Connected(true)
	return nil, s.Announcer.Set(func(a *contract.Announcement) {
		a.Connected, a.Runtime, a.RuntimeVersion, a.NRIVersion = true, s.runtime, s.runtimeVersion, s.nriVersion()
		s.tell(a)
		if generation != 0 {
			a.Generation = generation
		}
	})
}

// tell puts into the announcement what the frontend cannot see from where it is.
func (p *Plugin) tell(a *contract.Announcement) {
	if p.session != nil {
		a.Features = p.session.features()
	}
	a.Kubepods = p.levels[contract.LevelKubepods]
	a.InvalidPartitions = p.invalidPartitions()
	a.Overwritten = p.overwritten.recent(p.Clock().Add(-max(remembered, 3*p.RefreshInterval)))
}

// Apply brings everything that runs to the present node state, and repairs
// what others changed. It is called when the CDI directory changes, and now
// and then in any case.
func (p *Plugin) Apply(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.connected {
		// Synchronize will do it, with the list of what runs.
		return nil
	}
	generation, err := p.apply(ctx)
	p.tryPartitions(ctx)
	return errors.Join(err, p.Announcer.Set(func(a *contract.Announcement) {
		p.tell(a)
		if err == nil {
			a.Generation = generation
		}
	}))
}

func (p *Plugin) observe(hook string, start time.Time, result func() metrics.Outcome) {
	p.Metrics.Hook(hook, result(), start)
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
