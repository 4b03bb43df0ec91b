// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// floodTime bounds one connection: the server may let it wait for ever.
const floodTime = time.Minute

// flood opens count connections to an HTTP server at the same time, and each
// sends size bytes of a header that does not end and then waits for the server
// to give it up. It returns how many connections were made.
func flood(ctx context.Context, address string, count, size int) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, floodTime)
	defer cancel()
	request := "GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", size)
	var (
		mu        sync.Mutex
		connected int
		last      error
		all       sync.WaitGroup
	)
	for range count {
		all.Go(func() {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", address)
			mu.Lock()
			if err == nil {
				connected++
			} else {
				last = err
			}
			mu.Unlock()
			if err != nil {
				return
			}
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			// The server may end it at any time: that is its right.
			_, _ = io.WriteString(conn, request)
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	all.Wait()
	if connected == 0 {
		return nil, fmt.Errorf("flood: no connection to %s: %w", address, last)
	}
	return map[string]any{"action": "flood", "connections": connected}, nil
}
