// SPDX-License-Identifier: Apache-2.0

// Command isolation shows what the kinds of exclusive CPUs are worth and what they cost. It boots a cluster of one node
// with the kernel of -kernel, and installs the chart. More emulated machines would take the CPUs from each other.
// For each kind a thread wakes up beside a pod and a process of the node that burn all CPUs they may use. Then pods with
// claims start beside more and more containers without. The results go into docs as tables and pictures. An expectation
// that does not hold makes the exit code 1.
//
// The flow: main.go prepares the cluster, package bench starts and ends it, package isolation makes the runs,
// latency.go and start.go write and draw one run each.
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
	runs, kernel       string
	interval, duration time.Duration
	repetitions        int
}

func main() {
	b := &bench.Bench{Name: "isolation", Make: target}
	b.Flags(flag.CommandLine)
	var o options
	flag.StringVar(&o.runs, "runs", "latency,start", "what to measure, comma separated")
	flag.StringVar(&o.kernel, "kernel", cluster.KernelNewest, "the node's kernel: stable, backports or newest")
	flag.DurationVar(&o.interval, "interval", 2*time.Millisecond, "the thread wants to wake up so often")
	flag.DurationVar(&o.duration, "duration", time.Minute, "for so long, each kind")
	flag.IntVar(&o.repetitions, "repetitions", 6,
		"starts of each kind beside each number of containers; best a multiple of the three kinds")
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
	var broken []error
	for run := range strings.SplitSeq(o.runs, ",") {
		// place is the place of the text in the page, and the picture's name.
		var text, picture, place string
		switch run {
		case "latency":
			all, err := bench.Latencies(ctx, o.interval, o.duration)
			if err != nil {
				return err
			}
			text, picture, place = latencyTable(all), drawLatency(all), "latency-"+bench.Kernel
			broken = append(broken, isolation.CheckLatencies(all))
		case "start":
			s, err := bench.Starts(ctx, []int{0, 20, 40, 80}, o.repetitions)
			if err != nil {
				return err
			}
			text, picture, place = startTable(s), drawStarts(s), "start"
			broken = append(broken, s.Check())
		default:
			return fmt.Errorf("-runs %q: there are latency and start", o.runs)
		}
		text = fmt.Sprintf("Linux %s.\n\n%s", strings.TrimSpace(release), text)
		if err := os.WriteFile(filepath.Join(b.Docs, "isolation-"+place+".svg"), []byte(picture), 0o644); err != nil {
			return err
		}
		if err := writeDocument(b.Docs, place, text); err != nil {
			return err
		}
		fmt.Println(text)
	}
	return errors.Join(broken...)
}

// writeDocument writes a run's text to its place in the page.
func writeDocument(docs, place, text string) error {
	return document.Insert(filepath.Join(docs, page), target+": "+place, text)
}
