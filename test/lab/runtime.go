// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// runtime is the container runtime. It has the containers, and calls NRI plugins
// with NRI's own runtime side.
type runtime struct {
	n      *Node
	socket string

	mu         sync.Mutex
	containers map[string]*Container
	// messages has the containers in the form that plugins get. A synchronisation
	// may read them at any time.
	messages map[string]message
	serial   int
	nri      *adaptation.Adaptation
	listener net.Listener
	conns    []net.Conn
}

// message is a container and its pod in the form that NRI plugins get.
type message struct {
	pod       *adaptation.PodSandbox
	container *adaptation.Container
}

func newRuntime(n *Node) *runtime {
	return &runtime{n: n, socket: n.path("nri.sock"), containers: make(map[string]*Container), messages: make(map[string]message)}
}

func (r *runtime) running() bool { return r.nri != nil }

func (r *runtime) start() {
	t := r.n.t
	r.n.mkdir("nri/plugins")
	r.n.mkdir("nri/conf.d")
	nri, err := adaptation.New("containerd", r.n.o.RuntimeVersion, r.synchronize,
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			return nil, errors.New("the actuator must not ask for updates: older runtimes deadlock")
		},
		adaptation.WithSocketPath(r.socket+".runtime"),
		adaptation.WithPluginPath(r.n.path("nri/plugins")),
		adaptation.WithPluginConfigPath(r.n.path("nri/conf.d")))
	require.NoError(t, err)
	require.NoError(t, nri.Start())
	r.nri = nri
	_ = os.Remove(r.socket)
	r.listener, err = net.Listen("unix", r.socket)
	require.NoError(t, err)
	go r.forward(r.listener)
}

// forward relays plugins' connections, so that stop can close them: NRI's runtime
// side leaves them open while its process lives.
func (r *runtime) forward(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", r.socket+".runtime")
		if err != nil {
			from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, to)
		r.mu.Unlock()
		go func() { defer to.Close(); _, _ = io.Copy(to, from) }()
		go func() { defer from.Close(); _, _ = io.Copy(from, to) }()
	}
}

func (r *runtime) stop() {
	if r.nri == nil {
		return
	}
	r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.nri.Stop()
	r.nri = nil
}

// StopRuntime ends the container runtime and waits until the actuator announces
// that. Containers run on.
func (n *Node) StopRuntime() {
	n.t.Helper()
	n.runtime.stop()
	if n.actuator == nil {
		return
	}
	n.happened(protocol.LinkLost)
	n.eventually("the actuator to notice", func() error {
		a, err := n.Announcement()
		if err == nil && a.Connected {
			err = errors.New("it says that it is connected")
		}
		return err
	})
}

// StartRuntime starts the container runtime again.
func (n *Node) StartRuntime() {
	n.t.Helper()
	n.runtime.start()
	if n.actuator != nil {
		n.connected()
	}
}

// RestartRuntime ends the container runtime and starts it again.
func (n *Node) RestartRuntime() {
	n.t.Helper()
	n.StopRuntime()
	n.StartRuntime()
}

// synchronize sends all containers to a plugin.
func (r *runtime) synchronize(ctx context.Context, callback adaptation.SyncCB) error {
	r.mu.Lock()
	pods := make(map[string]bool)
	var sandboxes []*adaptation.PodSandbox
	var containers []*adaptation.Container
	for _, id := range sorted(r.messages) {
		t := r.messages[id]
		containers = append(containers, t.container)
		if !pods[t.pod.Id] {
			pods[t.pod.Id] = true
			sandboxes = append(sandboxes, t.pod)
		}
	}
	r.mu.Unlock()
	updates, err := callback(ctx, sandboxes, containers)
	if err != nil {
		return err
	}
	if len(updates) > 0 {
		return errors.New("the actuator answered with updates: each would be a call of the OCI runtime")
	}
	return nil
}

// list returns the containers by id.
func (r *runtime) list() []*Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Container, 0, len(r.containers))
	for _, c := range r.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// keep adds a container, or updates its state.
func (r *runtime) keep(c *Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[c.ID], r.messages[c.ID] = c, message{pod: c.sandbox, container: c.nri()}
}

func (r *runtime) remove(c *Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, c.ID)
	delete(r.messages, c.ID)
}
