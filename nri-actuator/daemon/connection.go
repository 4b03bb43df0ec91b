// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/nri/pkg/stub"
	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/hooks"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// stayConnected connects to the runtime, again and again, until ctx ends.
func (d *Daemon) stayConnected(ctx context.Context, plugin *hooks.Plugin) {
	wait := minReconnect
	for ctx.Err() == nil {
		registered, err := d.connect(ctx, plugin)
		if e := plugin.Disconnected(); e != nil {
			logs.From(ctx).Error("announcement", zap.Error(e))
		}
		if registered {
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

// connect serves one connection until it is lost. Each has a stub and a
// session of its own, so that nothing of a lost one reaches the next.
func (d *Daemon) connect(ctx context.Context, plugin *hooks.Plugin) (registered bool, err error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", d.config.NRISocket)
	if err != nil {
		return false, err
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
		stub.WithLogger(nriLog{}))
	if err != nil {
		return false, err
	}
	// Start waits for the runtime's configuration without end, also on a
	// connection that was lost in the meantime.
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	select {
	case err := <-started:
		if err != nil {
			return false, err
		}
	case <-conn.lost:
		go func() {
			if <-started == nil {
				s.Stop()
			}
		}()
		return false, errors.New("connection lost while registering")
	}
	defer s.Stop()
	select {
	case <-conn.lost:
		return true, errors.New("connection lost")
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// connection tells when it is lost.
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
