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

// floodTime bounds a flood: the server may let connections wait for ever.
const floodTime = time.Minute

// flood opens count connections to an HTTP server at the same time. On each it
// sends size bytes of a header without an end and waits until the server closes the
// connection. The result has the number of connections that were made.
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
			// The server may close the connection at any time: no error.
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
