// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/hooks"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// stayConnected connects to the runtime, again and again, until ctx ends.
func (d *Daemon) stayConnected(ctx context.Context, plugin *hooks.Plugin) {
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
// configuration. A runtime that hangs there is left.
const configureTimeout = 30 * time.Second

// connect serves one connection until it is lost, and returns why it was, and
// whether the runtime had synchronised with the actuator before. Each connection
// has a stub and a session of its own, so that nothing of a lost one reaches the
// next.
func (d *Daemon) connect(ctx context.Context, plugin *hooks.Plugin) (synchronised bool, err error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", d.config.NRISocket)
	if err != nil {
		return false, fmt.Errorf("is NRI enabled in the runtime, and its socket mounted? %w", err)
	}
	conn := &connection{Conn: raw, lost: make(chan struct{})}
	defer conn.Close()
	var s stub.Stub
	session := plugin.NewSession(func() string { return s.RuntimeNRIVersion() })
	s, err = stub.New(session,
		stub.WithConnection(conn),
		stub.WithPluginName(d.config.PluginName),
		stub.WithPluginIdx(d.config.PluginIndex),
		stub.WithOnClose(conn.end),
		stub.WithFailurePolicy(failurePolicy()),
		stub.WithLogger(nriLog{}))
	if err != nil {
		return false, err
	}
	err = start(ctx, s, conn)
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

// failurePolicy is what a runtime with NRI 0.12.5 or later does with a call that
// the actuator does not answer in time: it goes on without the answer, as all
// others do, and the actuator stays connected. A failed call would keep pods
// without claims from starting (I7); a lost connection would leave every
// container that is created until the next one on all CPUs (I1).
func failurePolicy() *api.FailurePolicy { return &api.FailurePolicy{KeepConnected: true} }

// start registers with the runtime and waits for its configuration.
func start(ctx context.Context, s stub.Stub, conn *connection) error {
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
	// The stub waits for the configuration without end. Its own method is what
	// ends the wait.
	if stub, ok := s.(interface {
		Configure(context.Context, *api.ConfigureRequest) (*api.ConfigureResponse, error)
	}); ok {
		go func() {
			_, _ = stub.Configure(context.WithoutCancel(ctx), &api.ConfigureRequest{})
			if <-started == nil {
				s.Stop()
			}
		}()
	}
	return why
}

// connection reports when it is lost.
type connection struct {
	net.Conn
	once sync.Once
	lost chan struct{}
}

func (c *connection) end() { c.once.Do(func() { close(c.lost) }) }

// Read implements net.Conn. The stub reads all the time.
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
