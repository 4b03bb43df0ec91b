// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/nri"
)

// stayConnected connects to the runtime, and again after each loss, until ctx
// ends.
func (d *Daemon) stayConnected(ctx context.Context, plugin *nri.Plugin) {
	wait := minReconnect
	for ctx.Err() == nil {
		synchronised, err := d.connect(ctx, plugin)
		plugin.Disconnected(ctx, err.Error())
		if synchronised {
			wait = minReconnect
		}
		if ctx.Err() != nil {
			return
		}
		logs.From(ctx).Warn("not connected to the runtime", zap.Duration("retry", wait), zap.Error(err))
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, maxReconnect)
	}
}

// configureTimeout is how long a runtime may take from the registration to the
// configuration. Then the actuator closes the connection.
const configureTimeout = 30 * time.Second

// connect serves one connection until it is lost. It returns the cause of the
// loss, and whether the runtime had synchronised with the actuator. Each
// connection has its own stub and session, so that nothing of a lost connection
// reaches the next.
func (d *Daemon) connect(ctx context.Context, plugin *nri.Plugin) (synchronised bool, err error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", d.config.NRISocket)
	if err != nil {
		return false, fmt.Errorf("connect to the runtime: %w: check that NRI is enabled in the runtime and its socket is mounted", err)
	}
	conn := &connection{Conn: raw, lost: make(chan struct{})}
	defer conn.Close()
	shake := &handshake{registered: make(chan struct{})}
	var s stub.Stub
	session := plugin.NewSession(func() string { return s.RuntimeNRIVersion() })
	s, err = stub.New(session,
		stub.WithConnection(conn),
		stub.WithPluginName(d.config.PluginName),
		stub.WithPluginIdx(d.config.PluginIndex),
		stub.WithOnClose(conn.end),
		stub.WithFailurePolicy(failurePolicy()),
		stub.WithTTRPCOptions(
			[]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(shake.called)},
			[]ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(shake.serve)}),
		stub.WithLogger(nriLog{}))
	if err != nil {
		return false, err
	}
	err = start(ctx, s, conn, shake)
	if err == nil {
		defer s.Stop()
		select {
		case <-conn.lost:
			err = errClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if errors.Is(err, errClosed) && session.Configured() && !session.Synchronised() {
		err = fmt.Errorf("%w before it had listed its containers: see its log for \"synchronize\"; "+
			"a runtime cannot list four containers that have more than 4 MiB of environment together", err)
	}
	return session.Synchronised(), err
}

var errClosed = errors.New("the runtime closed the connection")

// failurePolicy is for a runtime with NRI 0.12.5 or later: if the actuator does
// not answer a call in time, the runtime goes on without the answer, as older
// runtimes do, and the actuator stays connected. A failed call would keep pods
// without claims from starting (I7). A lost connection would leave each
// container that is created before the next connection on all CPUs (I1).
func failurePolicy() *api.FailurePolicy { return &api.FailurePolicy{KeepConnected: true} }

// start registers with the runtime and waits until the runtime has configured
// the plugin.
func start(ctx context.Context, s stub.Stub, conn *connection, shake *handshake) error {
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	timeout := time.NewTimer(configureTimeout)
	defer timeout.Stop()
	var why error
	select {
	case err := <-started:
		return err
	case <-conn.lost:
		why = errClosed
	case <-timeout.C:
		why = fmt.Errorf("the runtime did not configure nri-actuator within %s of its registration", configureTimeout)
	case <-ctx.Done():
		why = ctx.Err()
	}
	conn.Close()
	go func() {
		if shake.abandon(context.WithoutCancel(ctx), s, started) == nil {
			s.Stop()
		}
	}()
	return why
}

// handshake ends a stub's start on a closed connection. A registered stub waits
// for the configuration without end; only a call of the stub's method Configure
// ends the wait. The stub's methods have no lock against each other at that
// point, so Configure is called once, and after the registration.
type handshake struct {
	registered chan struct{}
	configured atomic.Bool
}

// called closes registered when the runtime has answered the registration. A
// stub registers once, with its first call.
func (h *handshake) called(
	ctx context.Context, request *ttrpc.Request, response *ttrpc.Response, _ *ttrpc.UnaryClientInfo, invoke ttrpc.Invoker,
) error {
	err := invoke(ctx, request, response)
	if err == nil && request.Method == "RegisterPlugin" {
		close(h.registered)
	}
	return err
}

// serve serves the runtime's calls, but refuses a second Configure. The stub keeps all parts of the runtime's list until the last
// part has come. serve removes what the session does not read from each part, because the environments of a list have no bound.
func (h *handshake) serve(
	ctx context.Context, unmarshal ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, method ttrpc.Method,
) (any, error) {
	if path.Base(info.FullMethod) == "Configure" && !h.configured.CompareAndSwap(false, true) {
		return nil, errClosed
	}
	return method(ctx, func(message any) error {
		err := unmarshal(message)
		if list, ok := message.(*api.SynchronizeRequest); ok {
			nri.Reduce(list)
		}
		return err
	})
}

// abandon ends the start of the stub and returns the result of the start. The
// connection must be closed: the start of an unregistered stub then ends by
// itself.
func (h *handshake) abandon(ctx context.Context, s stub.Stub, started <-chan error) error {
	select {
	case err := <-started:
		return err
	case <-h.registered:
	}
	if stub, ok := s.(interface {
		Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
	}); ok && h.configured.CompareAndSwap(false, true) {
		_, _ = stub.Configure(ctx, &api.ConfigureRequest{})
	}
	return <-started
}

// connection is a connection that closes the channel lost at its end.
type connection struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

func (c *connection) end() { c.once.Do(func() { close(c.lost) }) }

// Read implements net.Conn. The stub always reads, so an error shows the loss at
// once.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.end()
	}
	return n, err
}

// nriLog sends the stub's messages to the logger in the context.
type nriLog struct{}

func (nriLog) Debugf(ctx context.Context, format string, args ...any) {
	logs.From(ctx).Debug(fmt.Sprintf(format, args...))
}

func (nriLog) Infof(ctx context.Context, format string, args ...any) {
	logs.From(ctx).Debug(fmt.Sprintf(format, args...))
}

func (nriLog) Warnf(ctx context.Context, format string, args ...any) {
	logs.From(ctx).Warn(fmt.Sprintf(format, args...))
}

func (nriLog) Errorf(ctx context.Context, format string, args ...any) {
	logs.From(ctx).Error(fmt.Sprintf(format, args...))
}
