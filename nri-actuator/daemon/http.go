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

// listen opens the address for probes and metrics. serve serves them until ctx
// ends.
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

// maxScrapes is how many scrapes are answered at a time. The next gets 503.
const maxScrapes = 2

// Handler serves /healthz (the process works), /readyz and, if configured,
// /metrics. Ready means that a rollout can go on: also while the process waits
// for the old actuator to end, and on a node where no runtime accepts it. The
// body then says why containers with claims cannot be created.
func (d *Daemon) Handler() http.Handler {
	mux := http.NewServeMux()
	if d.config.Metrics {
		// To compress a page of some 20 KiB, the server takes megabytes for each
		// client.
		options := promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, DisableCompression: true}
		mux.Handle("GET /metrics", promhttp.HandlerFor(d.registry, options))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, d.alive(), nil)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, d.alive(), d.fit())
	})
	return mux
}

func (d *Daemon) alive() error {
	if plugin := d.plugin.Load(); plugin != nil {
		return plugin.Alive()
	}
	return nil
}

func (d *Daemon) fit() error {
	if plugin := d.plugin.Load(); plugin != nil {
		return plugin.Ready()
	}
	return errors.New("starting, or waiting for another nri-actuator on this node to end")
}

// reply answers 503 with err, or 200 with the note.
func reply(w http.ResponseWriter, err, note error) {
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case note != nil:
		fmt.Fprintf(w, "ok, but containers with claims cannot be created: %v\n", note)
	default:
		fmt.Fprintln(w, "ok")
	}
}
