// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections may be open at a time. With clients
// that send the maximum or read nothing, the process then has 15 MB more
// (TestHostileConnections).
const maxConnections = 128

// newServer returns a server that no client can block or make large. If nothing
// enforces network policies, any program in the cluster's network can connect.
func newServer(h http.Handler) *http.Server {
	open := &connections{}
	server := &http.Server{
		Handler: h, ConnState: open.changed, MaxHeaderBytes: 4 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
	}
	// A connection serves one request: it must not grow old between requests.
	server.SetKeepAlivesEnabled(false)
	return server
}

// connections are the open connections, the oldest first. If there are too
// many, the oldest is closed and not the new one. So kubelet's probe, which
// takes milliseconds, is answered however many connections are idle.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

// changed is the server's ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open = append(c.open, conn)
		if len(c.open) > maxConnections {
			_ = c.open[0].Close()
			c.open = slices.Delete(c.open, 0, 1)
		}
	case http.StateClosed:
		c.open = slices.DeleteFunc(c.open, func(o net.Conn) bool { return o == conn })
	}
}
