// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/protocol"
)

// frontend has the calls that kubelet makes.
type frontend interface {
	// prepare and unprepare are calls for several claims. They return an answer
	// for each claim, by UID, or an error of the whole call.
	prepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]answer, error)
	unprepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]error, error)
	// ready returns why new claims have to wait, nil if they need not.
	ready() error
	stop()
}

// answer is the answer about one claim.
type answer struct {
	devices []device
	err     error
}

// StartFrontend starts a frontend after [Node.StopFrontend].
func (n *Node) StartFrontend() {
	n.t.Helper()
	if n.o.Embedded {
		n.frontend = newEmbedded(n)
		return
	}
	n.frontend = newServed(n)
}

// RestartFrontend ends the frontend and starts it again.
func (n *Node) RestartFrontend() {
	n.t.Helper()
	n.StopFrontend()
	n.StartFrontend()
}

// StopFrontend ends the frontend.
func (n *Node) StopFrontend() {
	n.frontend.stop()
	n.happened(protocol.FrontendDied)
}

// Ready waits until the frontend takes new claims and its slices have no taints.
func (n *Node) Ready() {
	n.t.Helper()
	n.eventually("the frontend to be ready", n.frontend.ready)
	n.Taints()
}

// Taints waits until each published device has exactly these taints.
func (n *Node) Taints(keys ...string) {
	n.t.Helper()
	n.eventually("the slices to be published", func() error {
		if len(n.API.Slices()) == 0 {
			return errors.New("no slice")
		}
		for name, d := range n.API.Devices() {
			var got []string
			for _, taint := range d.Taints {
				got = append(got, taint.Key)
			}
			if !slices.Equal(got, keys) {
				return fmt.Errorf("device %s is tainted with %q, want %q", name, got, keys)
			}
		}
		return nil
	})
}

// served is the frontend's daemon with kubelet's clients of its sockets.
type served struct {
	n      *Node
	config config.Config
	podUID string
	daemon *daemon.Daemon
	cancel context.CancelFunc
	ended  chan error
	conns  []*grpc.ClientConn
	dra    dra.DRAPluginClient
	health health.DRAResourceHealthClient
	// registry has the frontend's metrics.
	registry *prometheus.Registry
}

func newServed(n *Node) *served {
	s := startServed(n, n.config, n.o.Instance)
	n.eventually("the frontend to be registered", s.register)
	return s
}

// startServed starts a daemon and does not register it.
func startServed(n *Node, c config.Config, i Instance) *served {
	registry := prometheus.NewRegistry()
	d, err := n.newDaemon(c, i, registry)
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{n: n, config: c, podUID: i.PodUID, daemon: d, cancel: cancel, ended: make(chan error, 1), registry: registry}
	go func() { s.ended <- d.Run(ctx) }()
	return s
}

func (n *Node) newDaemon(c config.Config, i Instance, registry *prometheus.Registry) (*daemon.Daemon, error) {
	m, err := metrics.New(registry)
	require.NoError(n.t, err)
	var client kubernetes.Interface = n.API.Client
	if n.o.Client != nil {
		client = n.o.Client(client)
	}
	return daemon.New(daemon.Options{
		Log: n.o.Log, Config: c, Client: client, Metrics: m, PageSize: n.spec.PageSize,
		Release: i.Release, Kubelet: daemon.Kubelet{RootDir: c.KubeletRootDir, NodeName: NodeName, PodUID: i.PodUID},
	})
}

// Start returns the error with which a second frontend, with a changed
// configuration, would not start on the node, or nil.
func (n *Node) Start(change func(*config.Config)) error {
	c := n.config
	change(&c)
	_, err := n.newDaemon(c, n.o.Instance, prometheus.NewRegistry())
	return err
}

// register registers the frontend by its socket in plugins_registry, as kubelet
// does.
func (s *served) register() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case err := <-s.ended:
		s.ended <- err
		return fmt.Errorf("the frontend has ended: %w", err)
	default:
	}
	sockets, err := filepath.Glob(filepath.Join(s.n.config.KubeletRootDir, "plugins_registry", "*"+s.podUID+"*.sock"))
	if err != nil || len(sockets) != 1 {
		return fmt.Errorf("%d sockets, want 1: %w", len(sockets), err)
	}
	conn, err := s.dial(sockets[0])
	if err != nil {
		return err
	}
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	if info.GetType() != registration.DRAPlugin || info.GetName() != kubelet.DriverName {
		return fmt.Errorf("registered as %s %q", info.GetType(), info.GetName())
	}
	if conn, err = s.dial(info.GetEndpoint()); err != nil {
		return err
	}
	s.dra, s.health = dra.NewDRAPluginClient(conn), health.NewDRAResourceHealthClient(conn)
	_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: true})
	return err
}

func (s *served) dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		s.conns = append(s.conns, conn)
	}
	return conn, err
}

func (s *served) ready() error { return errors.Join(s.daemon.Ready(), s.daemon.ServesClaims()) }

func (s *served) stop() {
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.cancel()
	err := <-s.ended
	s.ended <- err
	require.NoError(s.n.t, err, "the frontend's end")
}

func (s *served) prepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]answer, error) {
	reply, err := s.dra.NodePrepareResources(ctx, &dra.NodePrepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return nil, err
	}
	answers := make(map[string]answer)
	for uid, r := range reply.GetClaims() {
		var a answer
		if r.GetError() != "" {
			a.err = errors.New(r.GetError())
		}
		for _, d := range r.GetDevices() {
			a.devices = append(a.devices, device{requests: d.GetRequestNames(), cdi: d.GetCdiDeviceIds()})
		}
		answers[uid] = a
	}
	return answers, nil
}

func (s *served) unprepare(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[string]error, error) {
	reply, err := s.dra.NodeUnprepareResources(ctx, &dra.NodeUnprepareResourcesRequest{Claims: wire(claims)})
	if err != nil {
		return nil, err
	}
	answers := make(map[string]error)
	for uid, r := range reply.GetClaims() {
		answers[uid] = nil
		if r.GetError() != "" {
			answers[uid] = errors.New(r.GetError())
		}
	}
	return answers, nil
}

func wire(claims []*resourceapi.ResourceClaim) []*dra.Claim {
	out := make([]*dra.Claim, 0, len(claims))
	for _, c := range claims {
		out = append(out, &dra.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}
