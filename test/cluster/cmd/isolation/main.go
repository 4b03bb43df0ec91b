// SPDX-License-Identifier: Apache-2.0

// Command isolation shows what the kinds of exclusive CPUs are worth and what they cost. It boots a cluster of three nodes
// with a kernel each, and installs the chart. For each kind a thread wakes up beside a pod
// and a process of the node that burn all CPUs they may use. Then pods with claims start beside more and more containers
// without. The results go into docs as tables and pictures. An expectation that does not hold makes the exit code 1.
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
	runs               string
	interval, duration time.Duration
	repetitions        int
}

func main() {
	b := &bench.Bench{Name: "isolation", Make: target}
	b.Flags(flag.CommandLine)
	var o options
	flag.StringVar(&o.runs, "runs", "latency,start", "what to measure, comma separated: latency on each kernel, start on the newest")
	flag.DurationVar(&o.interval, "interval", 2*time.Millisecond, "the thread wants to wake up so often")
	flag.DurationVar(&o.duration, "duration", time.Minute, "for so long, each kind")
	flag.IntVar(&o.repetitions, "repetitions", 6,
		"starts of each kind beside each number of containers; best a multiple of the three kinds")
	flag.Parse()
	b.Main(settings(), func(ctx context.Context) error {
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
func settings() cluster.Options {
	s := cluster.Defaults()
	s.Machine = qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	s.Kernel = cluster.KernelNewest
	s.Nodes, s.Kernels = 3, map[string]string{"node1": cluster.KernelBackports, "node2": cluster.KernelStable}
	return s
}

func measure(ctx context.Context, b *bench.Bench, o options) error {
	var broken []error
	for run := range strings.SplitSeq(o.runs, ",") {
		var text, picture string
		switch run {
		case "latency":
			for _, node := range b.Cluster.NodeNames() {
				bench, release, err := on(ctx, b, node)
				if err != nil {
					return err
				}
				all, err := bench.Latencies(ctx, o.interval, o.duration)
				if err != nil {
					return err
				}
				text += release + latencyTable(all) + "\n"
				if node == b.Node {
					picture = drawLatency(all)
				}
				if err := isolation.CheckLatencies(all); err != nil {
					broken = append(broken, fmt.Errorf("kernel %s: %w", bench.Kernel, err))
				}
			}
			text = strings.TrimSuffix(text, "\n")
		case "start":
			bench, release, err := on(ctx, b, b.Node)
			if err != nil {
				return err
			}
			s, err := bench.Starts(ctx, []int{0, 20, 40, 80}, o.repetitions)
			if err != nil {
				return err
			}
			text, picture = release+startTable(s), drawStarts(s)
			broken = append(broken, s.Check())
		default:
			return fmt.Errorf("-runs %q: there are latency and start", o.runs)
		}
		if err := os.WriteFile(filepath.Join(b.Docs, "isolation-"+run+".svg"), []byte(picture), 0o644); err != nil {
			return err
		}
		if err := writeDocument(b.Docs, run, text); err != nil {
			return err
		}
		fmt.Println(text)
	}
	return errors.Join(broken...)
}

// on returns the measurements on a node, and a paragraph with its kernel's release.
func on(ctx context.Context, b *bench.Bench, node string) (*isolation.Bench, string, error) {
	release, err := b.Cluster.NodeExec(ctx, node, "uname -r")
	if err != nil {
		return nil, "", err
	}
	return &isolation.Bench{
		Cluster: b.Cluster, Client: b.Client, Node: node, Kernel: b.Cluster.Kernel(node), NUMA: 1, CPUs: 2, Log: b.Log,
	}, fmt.Sprintf("Linux %s.\n\n", strings.TrimSpace(release)), nil
}

// writeDocument writes the run's text to the run's own place in the document.
func writeDocument(docs, run, text string) error {
	return document.Insert(filepath.Join(docs, page), target+": "+run, text)
}
