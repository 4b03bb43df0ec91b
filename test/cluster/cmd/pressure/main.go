// SPDX-License-Identifier: Apache-2.0

// Command pressure shows what a claim's memory values are worth when memory is short: it boots a cluster whose node has
// two NUMA nodes and swap space, installs the chart, lets a neighbour take everything on one NUMA node, lets containers go
// over their limits, and writes what became of them as a chart and a table into docs. An expectation that does not hold
// makes the exit code 1.
//
// The flow: main.go prepares the cluster, whose life package bench keeps, package pressure makes the runs, chart.go and svg.go draw
// them, table.go words them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

const author = "make bench-memory"

func main() {
	b := &bench.Bench{Name: "pressure", Make: author}
	b.Flags(flag.CommandLine)
	numa := flag.Int("numa", 1, "NUMA node to put under pressure")
	flag.Parse()
	s := settings()
	b.Main(s, func(ctx context.Context) error {
		p := &pressure.Bench{Cluster: b.Cluster, Client: b.Client, Node: b.Node, NUMA: *numa, Log: b.Log}
		if !b.Reuse {
			if err := prepare(ctx, b, p, s.Machine.MemoryMiB<<20); err != nil {
				return err
			}
		}
		return measure(ctx, p, b.Docs)
	})
}

// settings' machine has NUMA nodes that are filled in a minute, and swap space of the size of its memory: the kubelet's LimitedSwap
// grants a container the share of it that it requests of the memory.
func settings() cluster.Options {
	s := cluster.Defaults()
	s.Machine = qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	s.FreeMiB = s.Machine.MemoryMiB + 1024
	s.Kubelet = map[string]any{"memorySwap": map[string]any{"swapBehavior": "LimitedSwap"}}
	return s
}

// prepare gives the node swap space, starts its kubelet anew so that it knows, and installs the driver.
func prepare(ctx context.Context, b *bench.Bench, p *pressure.Bench, swap int) error {
	if _, err := p.EnableSwap(ctx, swap); err != nil {
		return err
	}
	if _, err := b.Cluster.NodeExec(ctx, b.Node, "service restart kubelet"); err != nil {
		return err
	}
	return b.Install(ctx)
}

// claimOfLimits is the size of the claims of the limits run.
const claimOfLimits = 64 << 20

func measure(ctx context.Context, b *pressure.Bench, docs string) error {
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
	if err := os.WriteFile(filepath.Join(docs, "memory-pressure.svg"), []byte(draw(charts(reclaim, limits))), 0o644); err != nil {
		return err
	}
	table := tables(size, reclaim, limits)
	if err := bench.Insert(filepath.Join(docs, "memory-pressure.md"), author, table); err != nil {
		return err
	}
	fmt.Print(table)
	return errors.Join(reclaim.Check(), limits.Check())
}
