// SPDX-License-Identifier: Apache-2.0

// Package serve answers the probes and the metrics scraper.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes may be answered at a time; one more gets 503.
const maxScrapes = 2

// Handler serves /healthz (the process answers), /readyz, whose body says why
// the node takes no new claims, and, unless gatherer is nil, /metrics.
func Handler(gatherer prometheus.Gatherer, ready func() error) http.Handler {
	mux := http.NewServeMux()
	if gatherer != nil {
		// Compressed, a page of some 20 KiB would cost a client megabytes of the server's.
		options := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true}
		mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, options))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// Serve serves the handler on the address until ctx ends. An address that
// cannot be bound is an error at once.
func Serve(ctx context.Context, address string, h http.Handler) (wait func() error, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics and probes: %w", err)
	}
	server := newServer(h)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	stop := context.AfterFunc(ctx, func() { server.Close() })
	return func() error {
		defer stop()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
