// SPDX-License-Identifier: Apache-2.0

package process

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections is how many connections may be open at a time.
const maxConnections = 128

// maxServed is how many connections may have a goroutine. A connection that is
// closed to make room keeps its goroutine and buffers until the goroutine has
// noticed, which takes long on a busy machine. Hostile clients on all of them
// cost the process 10 MB (TestHostileConnections).
const maxServed = 2 * maxConnections

// newServer returns a server that bounds the memory and time of each client: if
// no network policy is enforced, any pod of the cluster may be a client.
func newServer(h http.Handler) *http.Server {
	open := &connections{served: make(chan struct{}, maxServed)}
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
	mu     sync.Mutex
	open   []net.Conn
	served chan struct{} // one element for each connection with a goroutine
}

// changed is the server's ConnState. The server calls it for a new connection
// before it accepts the next, so the server accepts none while maxServed
// connections have a goroutine.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.add(conn)
		c.served <- struct{}{}
	case http.StateClosed:
		c.remove(conn)
		<-c.served
	}
}

func (c *connections) add(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, conn)
	if len(c.open) > maxConnections {
		_ = c.open[0].Close()
		c.open = slices.Delete(c.open, 0, 1)
	}
}

func (c *connections) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(o net.Conn) bool { return o == conn })
}
