// SPDX-License-Identifier: Apache-2.0

// Command pressure shows what a claim's memory values are worth when memory is short: it boots a cluster whose node has
// two NUMA nodes and swap space, installs the chart, lets a neighbour take everything on one NUMA node, lets containers go
// over their limits, and writes what became of them as a chart and a table into docs. An expectation that does not hold
// makes the exit code 1.
//
// The flow: main.go keeps the cluster's life, package pressure makes the runs, chart.go and svg.go draw them, table.go
// writes them into the document.
package main

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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

type options struct {
	images, tag, chart, docs, logs string
	node                           string
	numa                           int
	reuse, keep                    bool
}

func main() {
	var o options
	flag.StringVar(&o.images, "images", "", "comma separated archives of the driver's images")
	flag.StringVar(&o.tag, "tag", "bench", "tag of the driver's images")
	flag.StringVar(&o.chart, "chart", "../../charts/dra-driver-cpumem", "the driver's chart")
	flag.StringVar(&o.docs, "docs", "../../docs", "directory of memory-pressure.md and memory-pressure.svg")
	flag.StringVar(&o.logs, "logs", "", "directory for logs if something goes wrong")
	flag.StringVar(&o.node, "node", "node0", "node to use")
	flag.IntVar(&o.numa, "numa", 1, "NUMA node to put under pressure")
	flag.BoolVar(&o.reuse, "reuse", false, "run on a cluster that is up, and the driver in it")
	flag.BoolVar(&o.keep, "keep", false, "leave the cluster running")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal finds the default handling and ends the process.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "pressure:", err)
		os.Exit(1)
	}
}

// settings' machine has NUMA nodes that are filled in a minute, and swap space of the size of its memory: the kubelet's LimitedSwap
// grants a container the share of it that it requests of the memory.
func settings(o options) (cluster.Options, error) {
	s := cluster.Defaults()
	s.Machine = qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	s.FreeMiB = s.Machine.MemoryMiB + 1024
	s.Kubelet = map[string]any{"memorySwap": map[string]any{"swapBehavior": "LimitedSwap"}}
	s.Images = strings.Split(o.images, ",")
	if accel, ok := os.LookupEnv("CPUMEM_CLUSTER_ACCEL"); ok {
		s.Accel = accel
	}
	if subnet, ok := os.LookupEnv("CPUMEM_CLUSTER_SUBNET"); ok {
		n, err := strconv.Atoi(subnet)
		if err != nil {
			return s, fmt.Errorf("CPUMEM_CLUSTER_SUBNET: %w", err)
		}
		s.Subnet = n
	}
	return s, nil
}

func run(ctx context.Context, o options) (err error) {
	if o.images == "" && !o.reuse {
		return errors.New("-images is required: start it with `make bench-memory`, which builds them")
	}
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	s, err := settings(o)
	if err != nil {
		return err
	}
	c, err := cluster.Open(dir, s)
	switch {
	case o.reuse && err != nil:
		return err
	case !o.reuse && err == nil:
		return fmt.Errorf("a cluster is up in %s, or was left there: end it with `make cluster-down`, or choose another directory with CPUMEM_CLUSTER_DIR and another network with CPUMEM_CLUSTER_SUBNET", dir)
	case !o.reuse:
		c = cluster.New(dir, s)
		err := c.Up(ctx)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return err // another command is at work in the directory: its cluster is not ours to end
		}
		if !o.keep {
			defer func() { err = errors.Join(err, c.Down(context.WithoutCancel(ctx))) }()
		}
		if err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && o.logs != "" && ctx.Err() == nil {
			err = errors.Join(err, c.CollectLogs(ctx, o.logs), fmt.Errorf("logs are in %s", o.logs))
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	began := time.Now()
	b := &pressure.Bench{Cluster: c, Client: client, Node: o.node, NUMA: o.numa, Log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "pressure %5.1f s: %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}}
	if !o.reuse {
		if err := prepare(ctx, c, b, o, s.Machine.MemoryMiB<<20); err != nil {
			return err
		}
	}
	return measure(ctx, b, o)
}

// prepare gives the node swap space, starts its kubelet anew so that it knows, and installs the driver.
func prepare(ctx context.Context, c *cluster.Cluster, b *pressure.Bench, o options, swap int) error {
	if _, err := b.EnableSwap(ctx, swap); err != nil {
		return err
	}
	if _, err := c.NodeExec(ctx, o.node, "service restart kubelet"); err != nil {
		return err
	}
	chart, err := filepath.Abs(o.chart)
	if err != nil {
		return err
	}
	b.Log("installing the chart")
	_, err = c.Helm(ctx, "install", "cpumem", chart, "--namespace", "cpumem-system", "--create-namespace",
		"--set", "frontend.image.tag="+o.tag, "--set", "actuator.image.tag="+o.tag,
		"--set", "frontend.image.pullPolicy=Never", "--set", "actuator.image.pullPolicy=Never",
		"--wait", "--timeout", "5m")
	return err
}

// claimOfLimits is the size of the claims of the limits run.
const claimOfLimits = 64 << 20

func measure(ctx context.Context, b *pressure.Bench, o options) error {
	size, err := b.Sizes(ctx)
	if err != nil {
		return err
	}
	b.Log("three claims of %d MiB and a neighbour that wants their NUMA node", size.Claim>>20)
	reclaim, err := b.Reclaim(ctx, size)
	if err != nil {
		return err
	}
	b.Log("containers that go over memory.high and memory.max")
	limits, err := b.Limits(ctx, claimOfLimits)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.docs, "memory-pressure.svg"), []byte(draw(charts(reclaim, limits))), 0o644); err != nil {
		return err
	}
	table := tables(size, reclaim, limits)
	if err := insert(filepath.Join(o.docs, "memory-pressure.md"), table); err != nil {
		return err
	}
	fmt.Print(table)
	return errors.Join(reclaim.Check(), limits.Check())
}
