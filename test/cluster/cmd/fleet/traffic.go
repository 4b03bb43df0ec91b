// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"sync"
)

// traffic is what goes between publishers and the API server, without TLS and headers.
type traffic struct {
	calls, refused int // refused: by priority and fairness, which the client tries again
	sent, received int64
	watches        int // that the server has accepted
}

// counter counts the traffic of all publishers.
type counter struct {
	mu      sync.Mutex
	traffic traffic
}

func (c *counter) add(change func(*traffic)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.traffic)
}

func (c *counter) get() traffic {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traffic
}

// through returns the round tripper that counts what next does.
func (c *counter) through(next http.RoundTripper) http.RoundTripper { return counted{c, next} }

type counted struct {
	*counter
	next http.RoundTripper
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	c.add(func(t *traffic) {
		t.calls++
		t.sent += max(0, req.ContentLength)
		switch {
		case err != nil:
		case resp.StatusCode == http.StatusTooManyRequests:
			t.refused++
		case resp.StatusCode == http.StatusOK && req.URL.Query().Get("watch") != "":
			t.watches++
		}
	})
	if err == nil {
		resp.Body = body{resp.Body, c.counter}
	}
	return resp, err
}

type body struct {
	io.ReadCloser
	counter *counter
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.counter.add(func(t *traffic) { t.received += int64(n) })
	return n, err
}
