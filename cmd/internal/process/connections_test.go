// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A62: a probe is answered beside maxConnections idle connections. The server
// closes the oldest connection only.
func TestTheOldestConnectionMakesRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }))
	// Without timeouts, only the limit closes connections.
	server.ReadHeaderTimeout, server.ReadTimeout = 0, 0
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	var waiting []net.Conn
	for range maxConnections {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		// The deadline only keeps a failure from hanging.
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		waiting = append(waiting, conn)
	}
	reply, err := http.Get("http://" + l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, http.StatusOK, reply.StatusCode)
	_, err = waiting[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = io.WriteString(waiting[1], "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(waiting[1])
	require.NoError(t, err)
	require.Contains(t, string(answer), "200 OK")
}

// A62: connections that were closed to make room, and whose goroutines have not
// noticed, are bounded too.
func TestClosedConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := newServer(nil).ConnState
		var conns []net.Conn
		for range maxServed + 1 {
			conn, _ := net.Pipe()
			conns = append(conns, conn)
		}
		accepted := 0
		go func() {
			for _, conn := range conns {
				changed(conn, http.StateNew)
				accepted++
			}
		}()
		synctest.Wait()
		require.Equal(t, maxServed, accepted)
		changed(conns[0], http.StateClosed)
		synctest.Wait()
		require.Equal(t, maxServed+1, accepted)
	})
}
