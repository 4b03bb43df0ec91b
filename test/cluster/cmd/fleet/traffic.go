// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// traffic is what goes between publishers and the API server, without TLS and headers.
type traffic struct {
	calls          map[string]int // by kind: an HTTP method, or "watch"
	failures       map[string]int // by cause: calls without an answer, or with an error, which the client makes again, and broken answers
	sent, received int64
}

// counter counts the traffic of all publishers.
type counter struct {
	mu      sync.Mutex
	traffic traffic
	starts  map[int]*start // by node
}

// start is the start of a node's publisher. The times of the answers are of the first answer each, and zero before.
type start struct{ began, watch, node, slice time.Time }

func newCounter() *counter {
	return &counter{traffic: traffic{calls: map[string]int{}, failures: map[string]int{}}, starts: map[int]*start{}}
}

// get returns the traffic, and how long each node waited that has done all calls of a start, sorted: a publisher reads its
// Node when it has the slices, and watches the slices. A node without a slice then creates its slice.
func (c *counter) get() (traffic, []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var waits []time.Duration
	for _, s := range c.starts {
		if !s.watch.IsZero() && !s.node.IsZero() {
			waits = append(waits, slices.MaxFunc([]time.Time{s.watch, s.node, s.slice}, time.Time.Compare).Sub(s.began))
		}
	}
	slices.Sort(waits)
	t := c.traffic
	t.calls, t.failures = maps.Clone(t.calls), maps.Clone(t.failures)
	return t, waits
}

// through returns the round tripper that counts what a node's next does. The node's start began at the given time.
func (c *counter) through(node int, began time.Time) func(next http.RoundTripper) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.starts[node] = &start{began: began}
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
		resp.Body = &body{ReadCloser: resp.Body, counter: c.counter}
	}
	return resp, err
}

func (c counted) count(req *http.Request, resp *http.Response, err error) {
	c.counter.mu.Lock()
	defer c.counter.mu.Unlock()
	t, s := &c.counter.traffic, c.counter.starts[c.node]
	kind, isWatch := req.Method, req.URL.Query().Get("watch") != ""
	if isWatch {
		kind = "watch"
	}
	t.calls[kind]++
	t.sent += max(0, req.ContentLength)
	switch {
	case err != nil:
		t.failures[cause(err)]++
	case resp.StatusCode >= http.StatusBadRequest:
		t.failures[resp.Status]++
	case isWatch:
		first(&s.watch)
	case req.URL.Path == nodePath(c.node):
		first(&s.node)
	case req.Method == http.MethodPost:
		first(&s.slice)
	}
}

// cause returns the innermost error of a call, which has no addresses.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// first sets a time that is not set.
func first(t *time.Time) {
	if t.IsZero() {
		*t = time.Now()
	}
}

type body struct {
	io.ReadCloser
	counter *counter
	// ended is set at the first error, and when the client closes the body: what is read after that is no failure.
	ended atomic.Bool
}

func (b *body) Close() error {
	b.ended.Store(true)
	return b.ReadCloser.Close()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.counter.mu.Lock()
	defer b.counter.mu.Unlock()
	b.counter.traffic.received += int64(n)
	if err != nil && !b.ended.Swap(true) && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		b.counter.traffic.failures[cause(err)]++
	}
	return n, err
}
