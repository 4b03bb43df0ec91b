// SPDX-License-Identifier: Apache-2.0

// Package httpserver is the HTTP server for probes and metrics.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// maxScrapes is how many scrapes are answered at a time; a further one gets 503.
const maxScrapes = 2

// Handler serves /healthz, which always succeeds, /readyz, which fails with the
// error of ready, and, unless gatherer is nil, /metrics. The body of /readyz?full
// also has the error of fit, which does not change the status.
func Handler(gatherer prometheus.Gatherer, ready, fit func() error) http.Handler {
	mux := http.NewServeMux()
	if gatherer != nil {
		// No compression: for a page of some 20 KiB it costs the server megabytes.
		options := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true}
		mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, options))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusOK, "ok"
		if err := ready(); err != nil {
			status, body = http.StatusServiceUnavailable, err.Error()
		}
		if r.URL.Query().Has("full") {
			body += "\n" + fitness(fit())
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, body)
	})
	return mux
}

func fitness(err error) string {
	if err == nil {
		return "new claims are taken"
	}
	return "no new claims are taken: " + err.Error()
}

// Serve serves the handler on the address until ctx ends. It fails at once if the
// address cannot be bound. wait waits for the end.
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
