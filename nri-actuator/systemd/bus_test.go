// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

// listen serves the first connection to a bus socket: the handshake, Hello, and
// then calls. answer returns the name of the error for a call, empty for
// success; answered is false for no answer.
func listen(t *testing.T, answer func(call *dbus.Message) (err string, answered bool)) (socket string) {
	socket = filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			reply := "REJECTED EXTERNAL\r\n"
			switch {
			case strings.HasPrefix(line, "BEGIN"):
				serve(conn, in, answer)
				return
			case strings.HasPrefix(line, "AUTH EXTERNAL"):
				reply = "OK 0123456789abcdef0123456789abcdef\r\n"
			}
			if _, err := conn.Write([]byte(reply)); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return socket
}

func serve(conn net.Conn, in *bufio.Reader, answer func(*dbus.Message) (string, bool)) {
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()),
		}}
		if call.Headers[dbus.FieldMember].Value() == "Hello" {
			reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(""))
			reply.Body = []any{":1.1"}
		} else {
			name, answered := answer(call)
			if !answered {
				continue
			}
			if name != "" {
				reply.Type = dbus.TypeError
				reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(name)
			}
		}
		if err := reply.EncodeTo(conn, binary.LittleEndian); err != nil {
			return
		}
	}
}

func TestDial(t *testing.T) {
	var calls []*dbus.Message
	stuck := make(chan struct{})
	socket := listen(t, func(call *dbus.Message) (string, bool) {
		calls = append(calls, call)
		unit := call.Body[0].(string)
		switch {
		case unit == "gone.slice":
			return "org.freedesktop.systemd1.NoSuchUnit", true
		case unit == "bad.slice" && len(call.Body) > 1:
			return "org.freedesktop.DBus.Error.InvalidArgs", true
		case unit == "stuck.slice":
			close(stuck)
		}
		return "", unit != "stuck.slice"
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	bus, err := systemd.Dial(ctx, socket)
	require.NoError(t, err)
	defer bus.Close()
	cancel()

	properties, err := systemd.Properties(map[string]string{"memory.min": "4096", "memory.low": "max"})
	require.NoError(t, err)
	require.NoError(t, bus.SetUnitProperties(t.Context(), "a.slice", true, properties...))
	var e dbus.Error
	require.ErrorAs(t, bus.SetUnitProperties(t.Context(), "gone.slice", true, properties...), &e)
	require.Equal(t, "org.freedesktop.systemd1.NoSuchUnit", e.Name)
	require.ErrorAs(t, bus.SetUnitProperties(t.Context(), "bad.slice", true, properties...), &e)
	require.Equal(t, "org.freedesktop.DBus.Error.InvalidArgs", e.Name)
	// Cancel the call when the bus has it, not while it is written.
	short, cancel := context.WithCancel(t.Context())
	go func() { <-stuck; cancel() }()
	require.ErrorIs(t, bus.SetUnitProperties(short, "stuck.slice", true, properties...), context.Canceled)
	require.NoError(t, bus.SetUnitProperties(t.Context(), "a.slice", true, properties...), "the connection stays")
	require.NoError(t, bus.Close())
	require.ErrorIs(t, bus.SetUnitProperties(t.Context(), "a.slice", true), net.ErrClosed)

	require.Equal(t, "GetUnit", calls[0].Headers[dbus.FieldMember].Value())
	set := calls[1]
	require.Equal(t, "org.freedesktop.systemd1", set.Headers[dbus.FieldDestination].Value())
	require.Equal(t, dbus.ObjectPath("/org/freedesktop/systemd1"), set.Headers[dbus.FieldPath].Value())
	require.Equal(t, "org.freedesktop.systemd1.Manager", set.Headers[dbus.FieldInterface].Value())
	require.Equal(t, "SetUnitProperties", set.Headers[dbus.FieldMember].Value())
	require.Equal(t, "sba(sv)", set.Headers[dbus.FieldSignature].Value().(dbus.Signature).String())
	require.Equal(t, []any{"a.slice", true, [][]any{
		{"MemoryLow", dbus.MakeVariant(^uint64(0))},
		{"MemoryMin", dbus.MakeVariant(uint64(4096))},
	}}, set.Body)
}

func TestDialErrors(t *testing.T) {
	_, err := systemd.Dial(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "system bus")

	// A bus that accepts and does not answer.
	socket := filepath.Join(t.TempDir(), "bus")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 1))
		}
		cancel()
		<-t.Context().Done()
	}()
	_, err = systemd.Dial(ctx, socket)
	require.ErrorIs(t, err, context.Canceled)
}

// A bus that reads nothing does not block the caller, and no message follows a
// broken message.
func TestBusThatReadsNothing(t *testing.T) {
	release := make(chan struct{})
	socket := listen(t, func(*dbus.Message) (string, bool) {
		<-release
		return "", false
	})
	defer close(release)
	bus, err := systemd.Dial(t.Context(), socket)
	require.NoError(t, err)
	defer bus.Close()
	for timeout := 10 * time.Millisecond; !errors.Is(err, net.ErrClosed); timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err = bus.SetUnitProperties(ctx, strings.Repeat("a", 1<<20), true)
		cancel()
		require.Error(t, err)
	}
}
