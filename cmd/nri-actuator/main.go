// SPDX-License-Identifier: Apache-2.0

// Command nri-actuator runs on each node beside the runtime. It gives
// containers the CPUs and the memory that dra-frontend decided for them. It
// installs cpumem-guard, which lies beside it, for the containers with claims.
package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/internal/process"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/selftest"
)

// version is set by the linker.
var version string

const (
	// cgroupRoot is the default of --cgroup-root.
	cgroupRoot = "/sys/fs/cgroup"
	procRoot   = "/proc"
)

func main() {
	if err := command().ExecuteContext(process.Context()); err != nil {
		process.LogEnd(err)
		os.Exit(1)
	}
}

// options are the flags that are not the daemon's configuration.
type options struct {
	address string
	metrics bool
	level   process.Level
}

func command() *cobra.Command {
	config := daemon.Config{ProcRoot: procRoot}
	var o options
	cmd := &cobra.Command{
		Use:               "nri-actuator",
		Short:             "Give containers the CPUs and the memory that dra-frontend decided",
		Version:           process.Version(version),
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), config, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.CDIDir, "cdi-dir", "/var/run/cdi", "CDI directory shared with dra-frontend and the runtime")
	f.StringVar(&config.NRISocket, "nri-socket", "/var/run/nri/nri.sock", "NRI socket of the container runtime")
	f.StringVar(&config.PluginName, "plugin-name", "cpumem", "name the plugin registers with")
	f.StringVar(&config.PluginIndex, "plugin-index", "90", "two digits that order the plugin among others")
	f.StringVar(&config.CgroupRoot, "cgroup-root", cgroupRoot, "mount point of cgroup v2")
	f.StringVar(&config.SystemBus, "system-bus", "/run/dbus/system_bus_socket",
		"socket of the host's D-Bus, for nodes where systemd manages the cgroups")
	f.StringVar(&config.UnitDir, "unit-dir", "/run/systemd/system.control", "systemd's directory of runtime drop-ins, likewise")
	f.StringVar(&config.GuardDir, "guard-dir", "",
		"directory to install the guard hook in, with the same path on the host; empty for no guard")
	f.StringVar(&config.IRQDir, "irq-dir", "/host/irq", "where the host's /proc/irq is mounted; empty or absent: interrupts stay as they are")
	f.StringVar(&config.CPUDir, "cpu-dir", "/host/cpu",
		"where the host's /sys/devices/system/cpu is mounted; empty or absent: wake-up latency and frequency stay as they are")
	f.StringVar(&config.WorkQueueDir, "workqueue-dir", "/host/workqueue",
		"where the host's /sys/devices/virtual/workqueue is mounted; empty or absent: work queues stay as they are")
	f.StringVar(&o.address, "metrics-address", ":9808",
		"address that serves /healthz, /readyz and, with --metrics, /metrics; empty for none")
	f.BoolVar(&o.metrics, "metrics", false, "serve /metrics")
	f.DurationVar(&config.RefreshInterval, "refresh-interval", 30*time.Second, "time between two repairs of what others changed")
	f.Var(&o.level, "log-level", "debug, info, warn or error")
	cmd.AddCommand(selftestCommand())
	return cmd
}

func run(ctx context.Context, config daemon.Config, o options) error {
	log, err := process.NewLogger(o.level.Level)
	if err != nil {
		return err
	}
	registry := process.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	config.GuardProgram = filepath.Join(filepath.Dir(self), "cpumem-guard")
	d, err := daemon.New(config, cgroups.Open, m)
	if err != nil {
		return err
	}
	server := process.Server{Address: o.address, Alive: d.Alive, Ready: d.Ready, ServesClaims: d.ServesClaims}
	if o.metrics {
		server.Metrics = registry
	}
	m.Build(process.Version(version))
	log.Info("starting", zap.String("version", process.Version(version)))
	if err := process.Run(logs.With(ctx, log), log, server, d.Run); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func selftestCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "selftest",
		Short:  "Compare this container's cgroup with its claim, for the pod of helm test",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return selftest.Check(os.Environ(), os.DirFS(cgroupRoot), cmd.OutOrStdout())
		},
	}
}
