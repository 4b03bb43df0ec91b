// SPDX-License-Identifier: Apache-2.0

// Command kernels compares the model of the kernel's cgroups (package kerneltest) with real kernels: random
// operations are taken on the model and on each kernel in a virtual machine, and all files are compared after each
// operation. The result is a table. A difference makes the exit code 1, and is printed as the shortest list of
// operations that leads to it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

type options struct {
	dir, tests, kernels string
	seed                uint64
	operations          int
	limit               time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "", "where kernels are kept (default: $CPUMEM_CLUSTER_DIR, or _output/cluster of the repository)")
	flag.StringVar(&o.tests, "tests", "..", "directory of the module test")
	flag.StringVar(&o.kernels, "kernels", "stable,backports,newest", "kernels, comma separated")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first boot; each boot has the next one")
	flag.IntVar(&o.operations, "operations", 100_000, "on each kernel")
	flag.DurationVar(&o.limit, "limit", time.Hour, "for one boot")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	program, remove, err := cluster.BuildProgram(ctx, o.tests, "./kernel/compare")
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
	fmt.Println("| kernel | operations without a difference | boots | seeds | time |\n|---|---|---|---|---|")
	for kernel := range strings.SplitSeq(o.kernels, ",") {
		release, err := c.UnpackKernel(ctx, kernel)
		if err != nil {
			return err
		}
		start, taken, boots := time.Now(), 0, 0
		for ; taken < o.operations; boots++ {
			done, err := boot(ctx, o, c, kernel, release, machine, program, o.seed+uint64(boots), o.operations-taken)
			if err != nil {
				return err
			}
			taken += done
			fmt.Fprintf(os.Stderr, "kernel %s: %d of %d operations\n", release, taken, o.operations)
		}
		fmt.Printf("| %s | %d | %d | %d to %d | %s |\n", release, taken, boots, o.seed, o.seed+uint64(boots)-1,
			time.Since(start).Round(time.Second))
	}
	return nil
}

var result = regexp.MustCompile(`(?m)^(?:done|again) (\d+) operations`)

// boot compares in one boot of a machine, and returns the number of operations. A kernel that has lost CPUs needs another
// boot for the rest.
func boot(ctx context.Context, o options, c *cluster.Cluster, kernel, release string, m qemu.Machine,
	program string, seed uint64, operations int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	out, err := c.BootProgram(ctx, kernel, m, program, fmt.Sprintf("model=%s seed=%d operations=%d", modelOf(release), seed, operations))
	match := result.FindStringSubmatch(out)
	if match == nil {
		return 0, errors.Join(fmt.Errorf("kernel %s, seed %d:\n%s", release, seed, out), err)
	}
	return strconv.Atoi(match[1])
}

// modelOf returns the model's name of a kernel: "6.12" for 6.12.95+deb12-amd64, "7" for each 7.
func modelOf(release string) string {
	numbers := strings.SplitN(release, ".", 3)
	if numbers[0] != "6" {
		return numbers[0]
	}
	return strings.Join(numbers[:2], ".")
}
