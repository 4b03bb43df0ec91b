// SPDX-License-Identifier: Apache-2.0

// Command frontendserver is the frontend's HTTP server without the frontend,
// which needs a Kubernetes API. It prints its address as a line of JSON on
// standard error. It is a program of its own because the memory of a process
// with the race detector is not the memory that the daemon has.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/httpserver"
)

func main() {
	fmt.Fprintln(os.Stderr, run())
	os.Exit(1)
}

func run() error {
	// No other process has an address with this process's id.
	pid := os.Getpid()
	address := fmt.Sprintf("127.%d.%d.%d:9807", 64+pid>>16, pid>>8&0xff, pid&0xff)
	fine := func() error { return nil }
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	wait, err := httpserver.Serve(context.Background(), address, httpserver.Handler(registry, fine, fine))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "{\"address\": %q}\n", address)
	return wait()
}
