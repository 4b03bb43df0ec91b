// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// traffic is what goes between publishers and the API server, without TLS and headers.
type traffic struct {
	calls, failed  int // failed: without an answer, or with an error, which the client tries again
	sent, received int64
	last           time.Time // of the last call
}

// counter counts the traffic of all publishers.
type counter struct {
	mu      sync.Mutex
	traffic traffic
	// watching and known are the nodes with a watch, and the nodes whose Node was read.
	watching, known map[int]bool
}

func newCounter() *counter { return &counter{watching: map[int]bool{}, known: map[int]bool{}} }

// get returns the traffic, and the number of nodes that have done all calls of a start: a publisher reads its Node when it
// has the slices, and watches them.
func (c *counter) get() (traffic, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := 0
	for node := range c.known {
		if c.watching[node] {
			done++
		}
	}
	return c.traffic, done
}

// through returns the round tripper that counts what a node's next does.
func (c *counter) through(node int) func(next http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return counted{c, node, next} }
}

type counted struct {
	counter *counter
	node    int
	next    http.RoundTripper
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	c.count(req, resp, err)
	if err == nil {
		resp.Body = body{resp.Body, c.counter}
	}
	return resp, err
}

func (c counted) count(req *http.Request, resp *http.Response, err error) {
	c.counter.mu.Lock()
	defer c.counter.mu.Unlock()
	t := &c.counter.traffic
	t.calls++
	t.sent += max(0, req.ContentLength)
	t.last = time.Now()
	switch {
	case err != nil || resp.StatusCode >= http.StatusBadRequest:
		t.failed++
	case req.URL.Query().Get("watch") != "":
		c.counter.watching[c.node] = true
	case req.URL.Path == nodePath(c.node):
		c.counter.known[c.node] = true
	}
}

type body struct {
	io.ReadCloser
	counter *counter
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.counter.mu.Lock()
	defer b.counter.mu.Unlock()
	b.counter.traffic.received += int64(n)
	return n, err
}
