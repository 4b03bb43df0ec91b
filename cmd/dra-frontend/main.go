// SPDX-License-Identifier: Apache-2.0

// Command dra-frontend is the daemon that offers a node's CPUs, memory and
// hugepages to the scheduler, and decides which of them a claim gets. For the
// flow see package daemon.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-logr/zapr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/internal/process"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/daemon"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// version is set by the linker.
var version = ""

func main() {
	if err := command().ExecuteContext(process.Context()); err != nil {
		process.LogEnd(err)
		os.Exit(1)
	}
}

type flags struct {
	config, nodeName, podUID, release, kubeconfig, metricsAddress string
	metrics                                                       bool
	level                                                         process.Level
}

func command() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:           "dra-frontend",
		Short:         "Offers CPUs, memory and hugepages of this node to Kubernetes and decides what claims get",
		Version:       process.Version(version),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	root.Flags().StringVar(&f.config, "config", "", "path of the configuration file; empty for defaults")
	root.Flags().StringVar(&f.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node in the cluster")
	root.Flags().StringVar(&f.podUID, "pod-uid", os.Getenv("POD_UID"), "UID of this instance's pod, for rolling updates without a gap")
	root.Flags().StringVar(&f.release, "release", os.Getenv("RELEASE"),
		"installation that this instance is part of, as namespace/name: instances of two installations do not share a node")
	root.PersistentFlags().StringVar(&f.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty inside a cluster")
	root.Flags().StringVar(&f.metricsAddress, "metrics-address", ":9807", "address of /healthz, /readyz and, with --metrics, /metrics")
	root.Flags().BoolVar(&f.metrics, "metrics", false, "serve /metrics")
	root.PersistentFlags().Var(&f.level, "log-level", "debug, info, warn or error")
	root.AddCommand(cleanupCommand(&f))
	return root
}

func cleanupCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Delete the driver's ResourceSlices of the whole cluster, after it was uninstalled",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := newClient(f.kubeconfig)
			if err != nil {
				return err
			}
			return deleteSlices(cmd.Context(), client)
		},
	}
}

// deleteSlices deletes this driver's slices of all nodes. The cleanup's role permits the deletion of any slice, so only the
// selector keeps the slices of other drivers.
func deleteSlices(ctx context.Context, client kubernetes.Interface) error {
	return client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: "spec.driver=" + kubelet.DriverName})
}

func run(ctx context.Context, f flags) error {
	log, err := process.NewLogger(f.level.Level)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// The frontend is idle most of the time: it collects garbage more often than Go's default, and takes less memory.
		debug.SetGCPercent(50)
	}
	klog.SetLoggerWithOptions(zapr.NewLogger(log), klog.ContextualLogger(true))
	ctx = klog.NewContext(ctx, zapr.NewLogger(log))

	if f.nodeName == "" {
		return fmt.Errorf("--node-name or NODE_NAME is required")
	}
	cfg, err := config.Read(f.config)
	if err != nil {
		return err
	}
	client, err := newClient(f.kubeconfig)
	if err != nil {
		return err
	}
	registry := process.NewRegistry()
	m, err := metrics.New(registry)
	if err != nil {
		return err
	}
	m.Build(process.Version(version))
	log.Info("starting", zap.String("version", process.Version(version)), zap.String("node", f.nodeName), zap.Any("config", cfg))
	d, err := daemon.New(daemon.Options{
		Log: log, Config: cfg, Client: client, Metrics: m, PageSize: int64(os.Getpagesize()), Release: f.release,
		Kubelet: daemon.Kubelet{RootDir: cfg.KubeletRootDir, NodeName: f.nodeName, PodUID: f.podUID},
	})
	if err != nil {
		return err
	}
	server := process.Server{
		Address: f.metricsAddress, Alive: func() error { return nil }, Ready: d.Ready, ServesClaims: d.ServesClaims,
	}
	if f.metrics {
		server.Metrics = registry
	}
	if err := process.Run(ctx, log, server, d.Run); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

func newClient(kubeconfig string) (kubernetes.Interface, error) {
	var (
		rc  *rest.Config
		err error
	)
	if kubeconfig == "" {
		rc, err = rest.InClusterConfig()
	} else {
		rc, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	// Protobuf takes less CPU and memory to decode than JSON.
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// While kubelet waits, a Prepare reads every pod of its claim.
	rc.QPS, rc.Burst = 50, 100
	return kubernetes.NewForConfig(rc)
}
