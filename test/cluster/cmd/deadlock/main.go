// SPDX-License-Identifier: Apache-2.0

// Command deadlock makes isolated cpuset partitions beside processes that are moved between cgroups, on each kernel in a
// virtual machine, and prints for each kernel whether it hung (docs/concepts/exclusivity.md). That Linux 6.12 hangs is a
// race, which the table only records. The exit code is 1 if a kernel of -sound hangs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

type options struct {
	dir, tests, kernels, sound string
	end                        string
	cycles, movers, patience   int
	limit                      time.Duration
	verbose                    bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "where kernels are kept (default: $CPUMEM_CLUSTER_DIR, or _output/cluster of the repository)")
	flag.StringVar(&o.tests, "tests", "..", "directory of the module test")
	flag.StringVar(&o.kernels, "kernels", "stable,backports,newest", "kernels, comma separated")
	flag.StringVar(&o.sound, "sound", cluster.KernelNewest, "kernels that must not hang, comma separated")
	flag.IntVar(&o.cycles, "cycles", 100, "partitions to make on each kernel")
	flag.IntVar(&o.movers, "movers", 4, "processes that move themselves between two cgroups all the time")
	flag.StringVar(&o.end, "end", "rmdir", "what ends a partition: rmdir, or member first")
	flag.IntVar(&o.patience, "patience", 0, "write by a process that is killed after so many seconds (0: never)")
	flag.DurationVar(&o.limit, "limit", time.Hour, "for one boot")
	flag.BoolVar(&o.verbose, "v", false, "print what the machines wrote to their consoles")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	program, remove, err := cluster.BuildProgram(ctx, o.tests, "./kernel/deadlock")
	if err != nil {
		return err
	}
	defer remove()
	if o.dir == "" {
		if o.dir, err = cluster.DefaultDir(); err != nil {
			return err
		}
	}
	c := cluster.New(o.dir, cluster.Defaults())
	machine := qemu.Default()
	machine.MemoryMiB, machine.Hugepages = 1024, 0
	words := fmt.Sprintf("cycles=%d movers=%d patience=%d end=%s", o.cycles, o.movers, o.patience, o.end)
	fmt.Println("| kernel | isolated partitions | result |\n|---|---|---|")
	var wrong []error
	for kernel := range strings.SplitSeq(o.kernels, ",") {
		release, err := c.UnpackKernel(ctx, kernel)
		if err != nil {
			return err
		}
		r, err := boot(ctx, o, c, kernel, machine, program, words)
		if err != nil {
			return fmt.Errorf("kernel %s: %w", release, err)
		}
		fmt.Printf("| %s | %d | %s |\n", release, r.cycles, r.text)
		if slices.Contains(strings.Split(o.sound, ","), kernel) {
			wrong = append(wrong, r.unsound(release, o.cycles))
		}
	}
	return errors.Join(wrong...)
}

func boot(ctx context.Context, o options, c *cluster.Cluster, kernel string, m qemu.Machine, program, words string) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	out, err := c.BootProgram(ctx, kernel, m, program, words)
	if o.verbose {
		fmt.Fprintln(os.Stderr, out)
	}
	if err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, out)
	}
	return read(out)
}
