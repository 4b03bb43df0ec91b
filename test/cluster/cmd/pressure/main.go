// SPDX-License-Identifier: Apache-2.0

// Command pressure shows what a claim's memory values are worth when memory is short. It boots a cluster with a node of two
// NUMA nodes and swap space, and installs the chart. A neighbour takes everything on one NUMA node; then containers go over
// their limits. The results go into docs as a chart and a table. An expectation that does not hold makes the exit code 1.
//
// The flow: main.go prepares the cluster, package bench starts and ends it, package pressure makes the runs, chart.go
// and svg.go draw them, table.go makes the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

const author = "make bench-memory"

func main() {
	b := &bench.Bench{Name: "pressure", Make: author}
	b.Flags(flag.CommandLine)
	b.ReuseFlags(flag.CommandLine)
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

// settings asks for NUMA nodes that a neighbour fills in a minute, and for a disk with room for as much swap space as
// memory: with LimitedSwap a container gets the same share of the swap space as it requests of the memory.
func settings() cluster.Options {
	s := cluster.Defaults()
	s.Machine = qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	s.FreeMiB = s.Machine.MemoryMiB + 1024
	s.Kubelet = map[string]any{"memorySwap": map[string]any{"swapBehavior": "LimitedSwap"}}
	return s
}

// prepare gives the node swap bytes of swap space, restarts the kubelet so that it sees them, and installs the driver.
func prepare(ctx context.Context, b *bench.Bench, p *pressure.Bench, swap int) error {
	if _, err := p.EnableSwap(ctx, swap); err != nil {
		return err
	}
	if _, err := b.Cluster.NodeExec(ctx, b.Node, "service restart kubelet"); err != nil {
		return err
	}
	return b.Install(ctx)
}

// claimOfLimits is the size of a claim of the limits run, in bytes.
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
	if err := document.Insert(filepath.Join(docs, "memory-pressure.md"), author, table); err != nil {
		return err
	}
	fmt.Print(table)
	return errors.Join(reclaim.Check(), limits.Check())
}
