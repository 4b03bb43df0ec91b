// SPDX-License-Identifier: Apache-2.0

// Command isolation shows what the kinds of exclusive CPUs are worth. It boots a cluster of one node
// with the kernel of -kernel, and installs the chart. More emulated machines would take the CPUs from each other.
// For each kind a thread wakes up beside a pod and a process of the node that burn all CPUs they may use. The results go
// into docs as a table and a picture. An expectation that does not hold makes the exit code 1.
//
// The flow: main.go prepares the cluster, package bench starts and ends it, package isolation measures, latency.go writes
// and draws.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

const (
	target = "make bench-isolation"
	page   = "isolation-report.md"
)

type options struct {
	kernel             string
	interval, duration time.Duration
}

func main() {
	b := &bench.Bench{Name: "isolation", Make: target}
	b.Flags(flag.CommandLine)
	b.ReuseFlags(flag.CommandLine)
	var o options
	flag.StringVar(&o.kernel, "kernel", cluster.KernelNewest, "the node's kernel: stable, backports or newest")
	flag.DurationVar(&o.interval, "interval", 2*time.Millisecond, "the thread wants to wake up so often")
	flag.DurationVar(&o.duration, "duration", time.Minute, "for so long, each kind")
	flag.Parse()
	b.Main(settings(o.kernel), func(ctx context.Context) error {
		if !b.Reuse {
			if err := b.Install(ctx); err != nil {
				return err
			}
		}
		return measure(ctx, b, o)
	})
}

// settings asks for as small a machine as possible: emulated CPUs share the host's, so each busy CPU slows the rest
// down, and no kernel in the machine can change that.
func settings(kernel string) cluster.Options {
	s := cluster.Defaults()
	s.Machine = qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	s.Kernel = kernel
	return s
}

func measure(ctx context.Context, b *bench.Bench, o options) error {
	release, err := b.Cluster.NodeExec(ctx, b.Node, "uname -r")
	if err != nil {
		return err
	}
	bench := &isolation.Bench{
		Cluster: b.Cluster, Client: b.Client, Node: b.Node, Kernel: b.Cluster.Kernel(b.Node), NUMA: 1, CPUs: 2, Log: b.Log,
	}
	all, err := bench.Latencies(ctx, o.interval, o.duration)
	if err != nil {
		return err
	}
	picture := filepath.Join(b.Docs, "isolation-latency-"+bench.Kernel+".svg")
	if err := os.WriteFile(picture, []byte(drawLatency(all)), 0o644); err != nil {
		return err
	}
	text := fmt.Sprintf("Linux %s.\n\n%s", strings.TrimSpace(release), latencyTable(all))
	fmt.Println(text)
	return errors.Join(document.Insert(filepath.Join(b.Docs, page), place(bench.Kernel), text), isolation.CheckLatencies(all))
}

// place returns the author of a kernel's text, as the page's marks name it.
func place(kernel string) string { return target + ": latency-" + kernel }
