// SPDX-License-Identifier: Apache-2.0

// Command cluster makes, shows and removes the cluster of the end-to-end tests, with package cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "cluster", Short: "A real Kubernetes cluster in emulated machines, for the end-to-end tests",
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "",
		"where the cluster lives (default: $CPUMEM_CLUSTER_DIR, or _output/cluster of the repository)")
	at := func() (string, error) {
		if dir != "" {
			return absolute(dir)
		}
		return cluster.DefaultDir()
	}
	open := func() (*cluster.Cluster, error) {
		d, err := at()
		if err != nil {
			return nil, err
		}
		return cluster.Open(d, cluster.Defaults())
	}
	cmd.AddCommand(newBuild(at), newUp(at), newDown(at), newStatus(open), newKubeconfig(open),
		newShell(open), newLogs(open), newLoad(open), newStop(open), newStart(open),
		newTool(open, "kubectl"), newTool(open, "helm"), newExec(open))
	return cmd
}
