// SPDX-License-Identifier: Apache-2.0

// Package process is what both daemons are as processes: a version, signals, a log,
// and an HTTP server for probes and metrics. The daemons themselves know nothing of
// it.
package process

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Version returns the version that the linker has set, or else the version of the
// build's module.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Context returns a context that ends with the first interrupt or termination
// signal. A second signal ends the process at once.
func Context() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// NewLogger returns a logger that writes JSON lines to standard error.
func NewLogger(level zapcore.Level) (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(level)
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	// Each line is about another claim or container.
	c.Sampling = nil
	// The text of an error has its context; a stack trace adds nothing.
	c.DisableStacktrace = true
	return c.Build()
}

// Level is a log level as a flag.
type Level struct{ zapcore.Level }

// Type implements the flag's value.
func (l *Level) Type() string { return "level" }

// NewRegistry returns a registry with the metrics of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Run runs a daemon, and the server at the address while the daemon runs, until ctx
// ends. A server that fails ends the daemon.
func Run(ctx context.Context, log *zap.Logger, s Server, daemon func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, err := s.serve(ctx, log)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		err := <-served
		cancel()
		failed <- err
	}()
	err = daemon(ctx)
	cancel()
	return errors.Join(err, <-failed)
}
