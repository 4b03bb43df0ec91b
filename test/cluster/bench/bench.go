// SPDX-License-Identifier: Apache-2.0

// Package bench is what the commands that measure on a cluster of their own have in common: their flags, the life of that
// cluster (bench.go), and the document they write their results into (document.go).
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// Bench is a command's cluster.
type Bench struct {
	Name string // of the command, for messages
	Make string // the target that starts it
	Docs string
	Node string // node to use

	// Reuse says that the cluster was up before, and the driver and what else the command prepares in it.
	Reuse bool

	images, tag, chart, logs string
	keep                     bool

	began   time.Time
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
}

// Flags declares the flags of every such command.
func (b *Bench) Flags(set *flag.FlagSet) {
	set.StringVar(&b.images, "images", "", "comma separated archives of the driver's images")
	set.StringVar(&b.tag, "tag", "bench", "tag of the driver's images")
	set.StringVar(&b.chart, "chart", "../../charts/dra-driver-cpumem", "the driver's chart")
	set.StringVar(&b.Docs, "docs", "../../docs", "directory of the document and its pictures")
	set.StringVar(&b.logs, "logs", "", "directory for logs if something goes wrong")
	set.StringVar(&b.Node, "node", "node0", "node to use")
	set.BoolVar(&b.Reuse, "reuse", false, "run on a cluster that is up, and the driver in it")
	set.BoolVar(&b.keep, "keep", false, "leave the cluster running")
}

// Main is a command's main function after its flags are parsed: measure has a cluster with these settings.
func (b *Bench) Main(s cluster.Options, measure func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal finds the default handling and ends the process.
	context.AfterFunc(ctx, stop)
	if err := b.run(ctx, s, measure); err != nil {
		fmt.Fprintln(os.Stderr, b.Name+":", err)
		os.Exit(1)
	}
}

func (b *Bench) run(ctx context.Context, s cluster.Options, measure func(context.Context) error) (err error) {
	if b.images == "" && !b.Reuse {
		return fmt.Errorf("-images is required: start it with `%s`, which builds them", b.Make)
	}
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	s.Images = strings.Split(b.images, ",")
	if err := fromEnvironment(&s); err != nil {
		return err
	}
	c, err := cluster.Open(dir, s)
	switch {
	case b.Reuse && err != nil:
		return err
	case !b.Reuse && err == nil:
		return fmt.Errorf("a cluster is up in %s, or was left there: end it with `make cluster-down`, or choose another directory with CPUMEM_CLUSTER_DIR and another network with CPUMEM_CLUSTER_SUBNET", dir)
	case !b.Reuse:
		c = cluster.New(dir, s)
		err := c.Up(ctx)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return err // another command is at work in the directory: its cluster is not ours to end
		}
		if !b.keep {
			defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
		}
		if err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && b.logs != "" && ctx.Err() == nil {
			err = errors.Join(err, c.CollectLogs(ctx, b.logs), fmt.Errorf("logs are in %s", b.logs))
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1
	if b.Client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	b.Cluster, b.began = c, time.Now()
	return measure(ctx)
}

// fromEnvironment takes the settings a second cluster on the machine needs from the same variables as the command cluster.
func fromEnvironment(s *cluster.Options) error {
	if accel, ok := os.LookupEnv("CPUMEM_CLUSTER_ACCEL"); ok {
		s.Accel = accel
	}
	if subnet, ok := os.LookupEnv("CPUMEM_CLUSTER_SUBNET"); ok {
		n, err := strconv.Atoi(subnet)
		if err != nil {
			return fmt.Errorf("CPUMEM_CLUSTER_SUBNET: %w", err)
		}
		s.Subnet = n
	}
	return nil
}

// Install installs the chart with its default values and the images made here.
func (b *Bench) Install(ctx context.Context) error {
	chart, err := filepath.Abs(b.chart)
	if err != nil {
		return err
	}
	b.Log("installing the chart")
	_, err = b.Cluster.Helm(ctx, "install", "cpumem", chart, "--namespace", "cpumem-system", "--create-namespace",
		"--set", "frontend.image.repository=dra-cpumem/dra-frontend", "--set", "actuator.image.repository=dra-cpumem/nri-actuator",
		"--set", "frontend.image.tag="+b.tag, "--set", "actuator.image.tag="+b.tag,
		"--set", "frontend.image.pullPolicy=Never", "--set", "actuator.image.pullPolicy=Never",
		"--wait", "--timeout", "5m")
	return err
}

// Log prints a line of progress.
func (b *Bench) Log(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %5.1f s: %s\n", b.Name, time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
