// SPDX-License-Identifier: Apache-2.0

// Package bench is the common part of commands isolation, peers and pressure, which measure on a cluster of their own: the
// flags and the cluster's life.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// Bench is a measuring command with its cluster.
type Bench struct {
	Name string // of the command, for messages
	Make string // the make target that starts the command
	Docs string // directory of the document and its pictures
	Node string // node to measure on

	// Reuse measures on a cluster that is up, with the driver and the command's other preparations in it.
	Reuse bool

	images, tag, chart, logs string
	keep                     bool

	began   time.Time
	Cluster *cluster.Cluster
	Client  kubernetes.Interface
}

// ReuseFlags declares the flags of commands with one cluster.
func (b *Bench) ReuseFlags(set *flag.FlagSet) {
	set.BoolVar(&b.Reuse, "reuse", false, "run on a cluster that is up, and the driver in it")
	set.BoolVar(&b.keep, "keep", false, "leave the cluster running")
}

// Flags declares the flags that all measuring commands have.
func (b *Bench) Flags(set *flag.FlagSet) {
	set.StringVar(&b.images, "images", "", "comma separated archives of the driver's images")
	set.StringVar(&b.tag, "tag", "bench", "tag of the driver's images")
	set.StringVar(&b.chart, "chart", "../../charts/dra-driver-cpumem", "the driver's chart")
	set.StringVar(&b.Docs, "docs", "../../docs/explanation", "directory of the document and its pictures")
	set.StringVar(&b.logs, "logs", "", "directory for logs if something goes wrong")
	set.StringVar(&b.Node, "node", "node0", "node to use")
}

// Main is the main function of a command with one cluster, after its flags are parsed: it calls Run. An error makes the
// exit code 1.
func (b *Bench) Main(s cluster.Options, measure func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal gets the default handling, which ends the process.
	context.AfterFunc(ctx, stop)
	if err := b.Run(ctx, s, measure); err != nil {
		fmt.Fprintln(os.Stderr, b.Name+":", err)
		os.Exit(1)
	}
}

// Run starts or reuses a cluster with the settings s, runs measure and ends the cluster. The images under test are in its
// nodes beside those of s.
func (b *Bench) Run(ctx context.Context, s cluster.Options, measure func(context.Context) error) (err error) {
	if b.images == "" && !b.Reuse {
		return fmt.Errorf("-images is required: start it with `%s`, which builds them", b.Make)
	}
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	s.Images = append(s.Images, strings.Split(b.images, ",")...)
	if err := s.FromEnvironment(); err != nil {
		return err
	}
	c, err := cluster.Open(dir, s)
	switch {
	case b.Reuse && err != nil:
		return err
	case !b.Reuse && err == nil:
		return fmt.Errorf("a cluster is up in %s, or was left there: end it with `make cluster-down`, or choose another directory with "+
			"CPUMEM_CLUSTER_DIR and another network with CPUMEM_CLUSTER_SUBNET", dir)
	case !b.Reuse:
		c = cluster.New(dir, s)
		err := c.Up(ctx)
		if errors.Is(err, cluster.ErrInUse) {
			return err // the cluster of another command must not be ended here
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

// Install installs the chart with the images under test and the given values, such as metrics.enabled=true, and waits until
// the driver is ready. All other values are the defaults.
func (b *Bench) Install(ctx context.Context, values ...string) error {
	chart, err := filepath.Abs(b.chart)
	if err != nil {
		return err
	}
	b.Log("installing the chart")
	args := []string{"install", "cpumem", chart, "--namespace", "cpumem-system", "--create-namespace", "--wait", "--timeout", "5m"}
	for _, value := range append(cluster.ImageValues(b.tag), values...) {
		args = append(args, "--set", value)
	}
	_, err = b.Cluster.Helm(ctx, args...)
	return err
}

// Log prints a line of progress to standard error.
func (b *Bench) Log(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s %5.1f s: %s\n", b.Name, time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
