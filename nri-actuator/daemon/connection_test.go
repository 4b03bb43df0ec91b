// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"net"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/stretchr/testify/require"
)

// dying is a runtime that accepts the registration and dies.
type dying struct{ registered chan struct{} }

func (d *dying) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(d.registered)
	return &api.Empty{}, nil
}

func (d *dying) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

// TestRuntimeDiesWhileRegistering covers A36: the actuator connects again, at
// whatever point the connection ended.
func TestRuntimeDiesWhileRegistering(t *testing.T) {
	h := newHost(t)
	l, err := net.Listen("unix", h.config.NRISocket)
	require.NoError(t, err)
	h.startActuator()

	conn, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, conn.Close(), "before the registration")

	conn, err = l.Accept()
	require.NoError(t, err)
	// A request that comes before Listen would be lost.
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	rpc, err := mux.Listen(multiplex.RuntimeServiceConn)
	require.NoError(t, err)
	mux.Unblock()
	server, err := ttrpc.NewServer()
	require.NoError(t, err)
	d := &dying{registered: make(chan struct{})}
	api.RegisterRuntimeService(server, d)
	go func() { _ = server.Serve(t.Context(), rpc) }()
	<-d.registered
	require.NoError(t, conn.Close(), "between registration and configuration")
	require.NoError(t, server.Close())
	require.NoError(t, l.Close())

	h.startRuntime()
	defer h.stopRuntime()
	h.plugged()
}

// serveRegistration serves a runtime that accepts a registration and does
// nothing more. registered is closed after the registration.
func (h *host) serveRegistration() (registered <-chan struct{}) {
	l, err := net.Listen("unix", h.config.NRISocket)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { l.Close() })
	d := &dying{registered: make(chan struct{})}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		// A request that comes before Listen would be lost.
		mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
		rpc, err := mux.Listen(multiplex.RuntimeServiceConn)
		if err != nil {
			return
		}
		mux.Unblock()
		server, err := ttrpc.NewServer()
		if err != nil {
			return
		}
		h.t.Cleanup(func() { server.Close() })
		api.RegisterRuntimeService(server, d)
		_ = server.Serve(context.Background(), rpc)
	}()
	return d.registered
}
