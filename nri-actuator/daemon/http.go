// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
)

// listen opens the address for probes and metrics; the returned function
// serves until ctx ends.
func (d *Daemon) listen(ctx context.Context) (serve func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.config.MetricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	server := newServer(d.Handler())
	logs.From(ctx).Info("serving metrics and probes", zap.Stringer("address", l.Addr()))
	stop := context.AfterFunc(ctx, func() { server.Close() })
	return func() error {
		defer stop()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}

// maxScrapes may be answered at a time; one more gets 503.
const maxScrapes = 2

// Handler serves /healthz (the process lives), /readyz (containers with claims
// can be created; the body says why not) and, if they are wanted, /metrics.
func (d *Daemon) Handler() http.Handler {
	mux := http.NewServeMux()
	if d.config.Metrics {
		// Compressed, a page of some 20 KiB would cost a client megabytes of the server's.
		options := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true}
		mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, options))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := errors.New("starting, or waiting for another nri-actuator on this node to end")
		if plugin := d.plugin.Load(); plugin != nil {
			err = plugin.Ready()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}
