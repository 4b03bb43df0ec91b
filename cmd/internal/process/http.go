// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// Server answers probes and scrapes.
type Server struct {
	// Address is where the server listens, empty for no server.
	Address string
	// Metrics are served at /metrics, nil for none.
	Metrics prometheus.Gatherer
	// Alive is the answer of /healthz, Ready of /readyz: nil, or why not. A daemon
	// that is ready need not serve claims: a node that takes no new claims must
	// not stop a rollout.
	Alive, Ready func() error
	// ServesClaims returns why new claims are not served, nil if they are. The body
	// of /readyz has it.
	ServesClaims func() error
}

// maxScrapes is how many scrapes are answered at a time. The next gets 503.
const maxScrapes = 2

func (s Server) handler() http.Handler {
	mux := http.NewServeMux()
	if s.Metrics != nil {
		// To compress a page of some 20 KiB, the server takes megabytes for each
		// client.
		options := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true}
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, options))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, s.Alive(), "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		claims := "new claims are served"
		if err := s.ServesClaims(); err != nil {
			claims = "new claims are not served: " + err.Error()
		}
		reply(w, s.Ready(), claims)
	})
	return mux
}

// reply answers 503 with err, or 200, and a line with the note unless it is empty.
func reply(w http.ResponseWriter, err error, note string) {
	status, text := http.StatusOK, "ok"
	if err != nil {
		status, text = http.StatusServiceUnavailable, err.Error()
	}
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
	if note != "" {
		fmt.Fprintln(w, note)
	}
}

// serve serves until ctx ends. An address that cannot be bound is an error. served
// receives the error of the server's end.
func (s Server) serve(ctx context.Context, log *zap.Logger) (served <-chan error, err error) {
	done := make(chan error, 1)
	if s.Address == "" {
		context.AfterFunc(ctx, func() { done <- nil })
		return done, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	log.Info("serving metrics and probes", zap.Stringer("address", l.Addr()))
	server := newServer(s.handler())
	context.AfterFunc(ctx, func() { server.Close() })
	go func() {
		err := server.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		done <- err
	}()
	return done, nil
}
