// SPDX-License-Identifier: Apache-2.0

// Package process has what the programs need as processes: a version, signals, a log,
// and an HTTP server for probes and metrics. Only the commands import this package; the
// packages of the daemons do not.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

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

// allLines is how many lines with the same message are written in a second before lines are left out. Each decision has a line, and
// a second can have hundreds of decisions.
const allLines = 1000

// NewLogger returns a logger that writes JSON lines to standard error. Of the lines with one message in a second it writes the first
// 1000, and then every hundredth.
func NewLogger(level zapcore.Level) (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(level)
	c.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	// The text of an error has its context; a stack trace adds nothing.
	c.DisableStacktrace = true
	c.Sampling.Initial = allLines
	return c.Build()
}

// LogEnd logs the error that ends the program. It needs no logger of the program: an error of the
// flags or of the configuration is a line of the log as well.
func LogEnd(err error) {
	log, unusable := NewLogger(zapcore.ErrorLevel)
	if unusable != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	log.Error("ended", zap.Error(err))
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
	if err := giveUpHugePages(); err != nil {
		log.Warn("this process may take more memory than it needs", zap.Error(err))
	}
	start := time.AfterFunc(startTime, func() {
		if err := dropProgram(); err != nil {
			log.Warn("pages of the program that only its start needed stay in memory", zap.Error(err))
		}
	})
	defer start.Stop()
	served, err := s.serve(ctx, log)
	if err != nil {
		return err
	}
	return run(ctx, cancel, served, daemon)
}

// run runs the daemon until ctx ends or served receives, which gives the server's
// end. cancel ends ctx, and the server with it.
func run(ctx context.Context, cancel func(), served <-chan error, daemon func(context.Context) error) error {
	failed := make(chan error, 1)
	go func() {
		err := <-served
		cancel()
		failed <- err
	}()
	err := daemon(ctx)
	cancel()
	select {
	case late := <-failed:
		return errors.Join(err, late)
	case <-time.After(serverTimeout):
		// Requests may wait for a disk that hangs.
		return err
	}
}

// serverTimeout is how long the process waits for its server to end.
const serverTimeout = time.Second
