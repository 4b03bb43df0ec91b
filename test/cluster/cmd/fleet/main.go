// SPDX-License-Identifier: Apache-2.0

// Command fleet measures what the frontends of many nodes ask of the API server when all of them start at once, or within a
// time: without slices, as after an installation, and with slices, as after an upgrade. etcd and the API server are real and
// have their default limits. The nodes are objects only, and each has a publisher of its own: the library's, which the
// frontend uses. For the API server they are one service account, so that its limits hold.
//
// The flow: main.go has the fleets, start.go starts one, traffic.go counts what goes over the connections.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

const author = "make bench-fleet"

func main() {
	page := flag.String("page", "../../docs/explanation/scale.md", "page to write into; empty: none")
	nodes := flag.String("nodes", "100,1000,5000,15000/10m", "nodes of each fleet; 15000/10m: they start evenly within ten minutes")
	zones := flag.Int("zones", 2, "zones of each node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *nodes, *zones, *page); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, fleets string, zones int, page string) error {
	dir, err := cluster.DefaultDir()
	if err != nil {
		return err
	}
	sizes, err := sliceSizes(2, 8, 32, 128)
	if err != nil {
		return err
	}
	var results []result
	for word := range strings.SplitSeq(fleets, ",") {
		nodes, within, err := parseFleet(word)
		if err != nil {
			return fmt.Errorf("-nodes: %w", err)
		}
		of, err := run(ctx, dir, nodes, within, zones)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		results = append(results, of...)
		fmt.Print(table(of))
	}
	if page == "" {
		return nil
	}
	return document.Insert(page, author, table(results)+"\n"+sizes)
}

// parseFleet returns the number of nodes, and the time within which they start: 0 if all start at once.
func parseFleet(word string) (nodes int, within time.Duration, err error) {
	count, duration, spread := strings.Cut(word, "/")
	if nodes, err = strconv.Atoi(count); err != nil || !spread {
		return nodes, 0, err
	}
	within, err = time.ParseDuration(duration)
	return nodes, within, err
}

// run measures a fleet: the first start and a restart.
func run(ctx context.Context, dir string, nodes int, within time.Duration, zones int) (all []result, err error) {
	// etcd waits for the disk, as in a cluster whose data matter.
	p, err := hollow.Start(ctx, dir, map[string]map[string]string{"etcd": {"unsafe-no-fsync": "false"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Down(context.WithoutCancel(ctx))) }()
	f := fleet{plane: p, nodes: nodes, within: within}
	if f.devices, err = hollow.Devices(zones); err != nil {
		return nil, err
	}
	if f.pid, err = p.PID(hollow.APIServer); err != nil {
		return nil, err
	}
	if err := f.prepare(ctx); err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	for _, event := range []string{"first start", "restart"} {
		r, err := f.start(ctx, event)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", event, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// sliceSizes returns a table of the size of a node's slices by zones, and of the slices of all nodes of large clusters.
func sliceSizes(counts ...int) (string, error) {
	var b strings.Builder
	b.WriteString("| zones of a node | slices | bytes in all, as protobuf | the largest slice | 1000 nodes | 5000 nodes | 15,000 nodes |\n" +
		"|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, zones := range counts {
		devices, err := hollow.Devices(zones)
		if err != nil {
			return "", err
		}
		all, largest := 0, 0
		slices := hollow.Slices(hollow.Name(0), hollow.Driver, devices)
		for _, s := range slices {
			all, largest = all+s.Size(), max(largest, s.Size())
		}
		mib := float64(all) / (1 << 20)
		fmt.Fprintf(&b, "| %d | %d | %d | %d | %.1f MiB | %.1f MiB | %.1f MiB |\n",
			zones, len(slices), all, largest, 1000*mib, 5000*mib, 15000*mib)
	}
	return b.String(), nil
}

// table returns the results as Markdown.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| nodes | start | event | a node waits: median | longest | calls of a node | sent by a node | received by a node | " +
		"failed calls | API server's CPU | API server's memory |\n|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		n, start := float64(r.nodes), "at once"
		if r.within > 0 {
			start = fmt.Sprintf("within %g min", r.within.Minutes())
		}
		fmt.Fprintf(&b, "| %d | %s | %s | %.1f s | %.1f s | %s | %.1f KiB | %.1f KiB | %s | %.1f s | %d MiB |\n",
			r.nodes, start, r.event, r.waits[len(r.waits)/2].Seconds(), r.waits[len(r.waits)-1].Seconds(),
			perNode(r.traffic.calls, n), float64(r.traffic.sent)/n/1024, float64(r.traffic.received)/n/1024,
			failures(r.traffic.failures), r.cpu.Seconds(), r.memory>>20)
	}
	return b.String()
}

// perNode returns the calls of a node by kind.
func perNode(calls map[string]int, nodes float64) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(calls)) {
		all = append(all, fmt.Sprintf("%s %.2f", kind, float64(calls[kind])/nodes))
	}
	return strings.Join(all, ", ")
}

// failures returns the numbers of failed calls by cause, the most frequent first.
func failures(of map[string]int) string {
	if len(of) == 0 {
		return "0"
	}
	var all []string
	for _, cause := range slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	}) {
		all = append(all, fmt.Sprintf("%d: %s", of[cause], cause))
	}
	return strings.Join(all, "<br>")
}
