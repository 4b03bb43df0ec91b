// SPDX-License-Identifier: Apache-2.0

// Command scheduling measures how many pods the scheduler places each second on nodes with this driver's slices. etcd, the
// API server and the scheduler are real, the nodes are objects only. The results go into docs as a table.
//
// The flow: cases.go has what is measured, measure.go starts a control plane for each measurement, table.go writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

const author = "make bench-scheduler"

func main() {
	b := bench{}
	page := flag.String("page", "../../docs/explanation/scale.md", "page to write into; empty: none")
	run := flag.String("run", "", "measure only what this regular expression matches, and write no page")
	flag.IntVar(&b.pods, "pods", 300, "pods that wait when the scheduler starts")
	flag.DurationVar(&b.limit, "limit", 20*time.Second, "limit of a measurement, after which fewer pods count")
	flag.StringVar(&b.profiles, "profiles", "", "directory for the scheduler's CPU profiles; they change the numbers, so no page is "+
		"written; empty: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, b, *run, *page); err != nil {
		fmt.Fprintln(os.Stderr, "scheduling:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, b bench, run, page string) error {
	wanted, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	if b.dir, err = cluster.DefaultDir(); err != nil {
		return err
	}
	var results []result
	for _, s := range specs() {
		if !wanted.MatchString(s.String()) {
			continue
		}
		r, err := b.run(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		fmt.Printf("%s: %d of %d pods, %.1f/s, %s of the scheduler's CPU for each\n", s, r.pods+1, b.pods, r.podsPerSecond(),
			r.cpuPerPod().Round(time.Microsecond))
		results = append(results, r)
	}
	if len(results) == 0 {
		return fmt.Errorf("-run %q matches no measurement", run)
	}
	if run != "" || page == "" || b.profiles != "" {
		return nil
	}
	return document.Insert(page, author, table(results))
}
