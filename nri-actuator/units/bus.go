// SPDX-License-Identifier: Apache-2.0

package units

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Bus is a connection to systemd. It keeps the order: systemd takes calls in
// the order they were made, whether anybody waits for the answers or not.
type Bus interface {
	// SetUnitProperties sets properties of a unit that exists, all or none, and
	// has applied them to its cgroup when it returns without an error. An error
	// that was answered is a [dbus.Error].
	SetUnitProperties(ctx context.Context, unit string, runtime bool, properties ...Property) error
	Close() error
}

const (
	systemd = "org.freedesktop.systemd1"
	manager = systemd + ".Manager."
)

type systemBus struct {
	raw     net.Conn
	conn    *dbus.Conn
	systemd dbus.BusObject
}

// Dial connects to systemd over the system bus that listens on socket, normally
// /run/dbus/system_bus_socket. When ctx ends, connecting does; the connection
// stays.
func Dial(ctx context.Context, socket string) (Bus, error) {
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	// The library's handshake knows no context.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, err := dbus.NewConn(raw)
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
	// A bus that reads nothing would hold the call outside of ctx.
	deadline, _ := ctx.Deadline()
	if err := b.raw.SetWriteDeadline(deadline); err != nil {
		return err
	}
	// systemd makes a slice that it does not know rather than refuse it: one of
	// a pod that is gone, or a directory that only looks like a unit's.
	if err := b.systemd.CallWithContext(ctx, manager+"GetUnit", 0, unit).Err; err != nil {
		return err
	}
	if properties == nil {
		properties = []Property{}
	}
	return b.systemd.CallWithContext(ctx, manager+"SetUnitProperties", 0, unit, runtime, properties).Err
}

// Close implements Bus.
func (b *systemBus) Close() error { return b.conn.Close() }

// silent tells whether a call ended without an answer of systemd, which may
// have executed it, or execute it still.
func silent(err error) bool {
	var e dbus.Error
	if err == nil || errors.As(err, &e) {
		// The bus answers for a systemd that went away.
		return slices.Contains([]string{
			"org.freedesktop.DBus.Error.NoReply",
			"org.freedesktop.DBus.Error.Timeout",
			"org.freedesktop.DBus.Error.TimedOut",
			"org.freedesktop.DBus.Error.Disconnected",
		}, e.Name)
	}
	return true
}

// fromSystemd tells whether the answer is surely systemd's own, not the bus's.
func fromSystemd(err error) bool {
	var e dbus.Error
	return err == nil || errors.As(err, &e) && strings.HasPrefix(e.Name, systemd+".")
}

// gone tells whether the answer is that there is no such unit.
func gone(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && (e.Name == systemd+".NoSuchUnit" || e.Name == "org.freedesktop.DBus.Error.UnknownObject")
}

// explain makes errors fit to be read.
func explain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", callTimeout)
	}
	var e dbus.Error
	if errors.As(err, &e) {
		return fmt.Sprintf("%s: %v", e.Name, e)
	}
	return err.Error()
}
