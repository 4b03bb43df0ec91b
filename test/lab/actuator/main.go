// SPDX-License-Identifier: Apache-2.0

// Command actuator is nri-actuator for the cgroups of package lab: its --cgroup-root is
// the socket of package remote. It has the flags and the guard of cmd/nri-actuator that
// the lab uses. "actuator write FILE CONTENT" is a hook of another program, which writes
// a cgroup file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/remote"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "guard":
		err = check(ctx, os.Args[2:])
	case len(os.Args) > 3 && os.Args[1] == "write":
		err = write(os.Args[2], os.Args[3], os.Args[4:])
	default:
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nri-actuator:", err)
		os.Exit(1)
	}
}

// run runs the daemon, with a server of its metrics.
func run(ctx context.Context) error {
	c := daemon.Config{PluginName: "cpumem", PluginIndex: "90", SystemBus: "/nonexistent/bus", UnitDir: "/nonexistent/units"}
	flag.StringVar(&c.CDIDir, "cdi-dir", "", "CDI directory")
	flag.StringVar(&c.NRISocket, "nri-socket", "", "NRI socket of the runtime")
	flag.StringVar(&c.CgroupRoot, "cgroup-root", "", "socket of the cgroups")
	flag.StringVar(&c.ProcRoot, "proc-root", "", "mount point of procfs")
	flag.StringVar(&c.GuardDir, "guard-dir", "", "directory of the guard")
	flag.DurationVar(&c.RefreshInterval, "refresh-interval", 0, "time between two repairs")
	flag.Parse()
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		return err
	}
	if c.GuardProgram, err = os.Executable(); err != nil {
		return err
	}
	d, err := daemon.New(c, remote.Open, m)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	log.Info("serving metrics", zap.Stringer("address", l.Addr()))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := http.Server{Handler: mux} //nolint:gosec // a test asks
	go func() { _ = server.Serve(l) }()
	err = d.Run(logs.With(ctx, log))
	return errors.Join(err, server.Close())
}

// roots are the flags that the lab adds to each hook.
func roots(args []string) (cgroup, proc string, err error) {
	f := flag.NewFlagSet("hook", flag.ContinueOnError)
	f.StringVar(&cgroup, "cgroup-root", "", "socket of the cgroups")
	f.StringVar(&proc, "proc-root", "", "mount point of proc")
	return cgroup, proc, f.Parse(args)
}

func check(ctx context.Context, args []string) error {
	hook := guard.Hook{
		Config:      func(bundle string) ([]byte, error) { return atomicfile.Read(bundle, "config.json", 64<<20) },
		PolicyModes: guard.PolicyModes, OpenMount: remote.Open, Features: contract.Features(),
	}
	var err error
	if hook.CgroupRoot, hook.ProcRoot, err = roots(args); err != nil {
		return err
	}
	if err := hook.Check(ctx, os.Stdin); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

func write(file, content string, args []string) error {
	root, _, err := roots(args)
	if err != nil {
		return err
	}
	client, err := remote.Dial(root)
	if err != nil {
		return err
	}
	cgroup, err := client.Open(path.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(cgroup.Write(path.Base(file), content), client.Close())
}
