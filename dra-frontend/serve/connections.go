// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections may be open at a time. Hostile clients
// on all of them cost the process 15 MB (TestHostileConnections).
const maxConnections = 128

// newServer returns a server that bounds the memory and time of each client: if
// no network policy is enforced, any pod of the cluster may be a client.
func newServer(h http.Handler) *http.Server {
	open := &connections{}
	server := &http.Server{
		Handler: h, ConnState: open.changed, MaxHeaderBytes: 4 << 10,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
	}
	// A connection serves one request, so that the oldest connection is never an
	// idle one.
	server.SetKeepAlivesEnabled(false)
	return server
}

// connections has the open connections, oldest first. A new connection above the
// limit closes the oldest, so that kubelet's probe, which takes milliseconds, is
// answered beside any number of idle connections.
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
