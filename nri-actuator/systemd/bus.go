// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// Bus is a connection to systemd. It keeps the order: systemd executes calls in
// the order in which they were made, whether or not the caller awaits answers.
type Bus interface {
	// SetUnitProperties sets properties of a unit that exists, all or none. When
	// it returns without an error, systemd has applied them to the unit's cgroup.
	// An error in systemd's answer is a [dbus.Error].
	SetUnitProperties(ctx context.Context, unit string, runtime bool, properties ...Property) error
	Close() error
}

const (
	systemd    = "org.freedesktop.systemd1"
	manager    = systemd + ".Manager."
	noSuchUnit = systemd + ".NoSuchUnit"
)

type systemBus struct {
	raw     net.Conn
	conn    *dbus.Conn
	systemd dbus.BusObject
}

// stream closes itself after a failed write: the receiver would take the next
// message for the rest of the broken message.
type stream struct{ net.Conn }

func (s stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err != nil {
		s.Close()
	}
	return n, err
}

// Dial connects to systemd over the system bus that listens on socket, normally
// /run/dbus/system_bus_socket. The end of ctx ends the connecting, not the
// connection.
func Dial(ctx context.Context, socket string) (Bus, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	// The library's handshake knows no context.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, err := dbus.NewConn(stream{raw})
	if err != nil {
		stop()
		return nil, errors.Join(err, raw.Close())
	}
	if err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err == nil {
		err = conn.Hello()
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("system bus %s: %w", socket, err)
	}
	return &systemBus{raw: raw, conn: conn, systemd: conn.Object(systemd, "/org/freedesktop/systemd1")}, nil
}

// SetUnitProperties implements Bus.
func (b *systemBus) SetUnitProperties(ctx context.Context, unit string, runtime bool, properties ...Property) error {
	// The library's writes know no context either, and a bus that reads nothing
	// blocks them.
	if err := b.raw.SetWriteDeadline(time.Time{}); err != nil {
		return err
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = b.raw.SetWriteDeadline(time.Now())
		close(over)
	})
	defer func() {
		if !stop() {
			<-over
		}
	}()
	// Ask for the unit first: systemd would make an unknown slice instead of
	// refusing it, for a pod that is gone or a directory with a unit's name.
	if err := b.systemd.CallWithContext(ctx, manager+"GetUnit", 0, unit).Err; err != nil {
		return err
	}
	return b.systemd.CallWithContext(ctx, manager+"SetUnitProperties", 0, unit, runtime, properties).Err
}

// Close implements Bus.
func (b *systemBus) Close() error { return b.conn.Close() }
