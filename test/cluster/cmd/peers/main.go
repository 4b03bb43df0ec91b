// SPDX-License-Identifier: Apache-2.0

// Command peers compares what CPUs of its own cost a pod when it starts beside more and more containers without: a claim of
// this driver, the static policy of kubelet's CPU manager, and another driver if the user gives one. Each has a cluster of
// one node of its own, and pods without a claim in it as the control, so that the ratios compare. The results go into docs
// as tables and a picture. The exit code is 1 if the start of a pod with a claim grows more than it should.
//
// The flow: main.go makes the clusters one after the other with package bench, package isolation measures, start.go writes
// and draws.
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

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

const (
	target  = "make bench-peers"
	page    = "isolation-report.md"
	picture = "isolation-start.svg"
)

type options struct {
	peer        string
	levels      []int
	repetitions int
}

func main() {
	b := &bench.Bench{Name: "peers", Make: target}
	b.Flags(flag.CommandLine)
	o := options{levels: []int{0, 20, 40, 80, 200}}
	const usage = "numbers of containers beside the pod: 0, then rising multiples of 10 (default 0,20,40,80,200)"
	flag.Func("levels", usage, func(list string) (err error) {
		o.levels, err = numbers(list)
		return err
	})
	flag.StringVar(&o.peer, "peer", "", "directory of another driver: image archives *.tar, install.yaml, and pod.yaml with NAME "+
		"for the name of a pod with a claim of 2 CPUs; empty: none")
	flag.IntVar(&o.repetitions, "repetitions", 6, "starts of each kind beside each number of containers; "+
		"a multiple of 6 gives each kind each place in the order equally often")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal gets the default handling, which ends the process.
	context.AfterFunc(ctx, stop)
	if err := compare(ctx, b, o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// numbers returns the numbers of a list such as 0,20,40.
func numbers(list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	for i, n := range all {
		if i == 0 && n != 0 || i > 0 && n <= all[i-1] || n%isolation.PerPod != 0 {
			return nil, fmt.Errorf("%v must be 0, then rising multiples of %d", all, isolation.PerPod)
		}
	}
	return all, nil
}

// contender is what one cluster measures.
type contender struct {
	name    string
	kinds   []string
	options cluster.Options
	install func(context.Context) error
	pod     []byte // the peer's
}

func contenders(b *bench.Bench, peer string) ([]contender, error) {
	machine := qemu.Machine{Sockets: 2, Cores: 2, Threads: 1, NUMAPerSocket: 1, MemoryMiB: 4096}
	options := func() cluster.Options {
		s := cluster.Defaults()
		s.Machine, s.Kernel = machine, cluster.KernelNewest
		return s
	}
	static := options()
	static.Kubelet = map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
	all := []contender{
		{
			name: "This driver", options: options(),
			install: func(ctx context.Context) error {
				return b.Install(ctx, "metrics.enabled=true", "metrics.from[0].ipBlock.cidr=0.0.0.0/0")
			},
			kinds: []string{isolation.None, isolation.Pool, isolation.Partition},
		},
		{
			name: "Kubelet's static policy", options: static, install: func(context.Context) error { return nil },
			kinds: []string{isolation.None, isolation.Static},
		},
	}
	if peer == "" {
		return all, nil
	}
	pod, err := os.ReadFile(filepath.Join(peer, "pod.yaml"))
	if err != nil {
		return nil, err
	}
	other := options()
	if other.Images, err = filepath.Glob(filepath.Join(peer, "*.tar")); err != nil {
		return nil, err
	}
	return append(all, contender{
		name: "The peer", options: other, kinds: []string{isolation.None, isolation.Peer}, pod: pod,
		install: func(ctx context.Context) error {
			if _, err := b.Cluster.Kubectl(ctx, "apply", "-f", filepath.Join(peer, "install.yaml")); err != nil {
				return err
			}
			_, err := b.Cluster.Kubectl(ctx, "wait", "--all-namespaces", "--all", "--for=condition=Ready", "--timeout=5m", "pods")
			return err
		},
	}), nil
}

// compare measures the contenders and writes the page.
func compare(ctx context.Context, b *bench.Bench, o options) error {
	all, err := contenders(b, o.peer)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "![Chart: how many times as long as a pod without a claim the start of a pod with CPUs of its own takes, "+
		"over the number of containers](%s)\n\n"+
		"The times are seconds from a pod's creation until the pod is ready: the median of %d starts (least to most). *To no claim* is "+
		"this median divided by the median of the pods without a claim on the same row. *Growth* is *to no claim* divided by "+
		"*to no claim* on the first row; for this driver it must not be above %.1f. *Part* is the time that kubelet and the runtime wait "+
		"for this driver's daemons, divided by the median of the pods without a claim on the same row; it must not be above %.1f.\n",
		picture, o.repetitions, isolation.Goal, isolation.PartGoal)
	var results []isolation.Starts
	var broken []error
	for _, c := range all {
		err := b.Run(ctx, c.options, func(ctx context.Context) error {
			if err := c.install(ctx); err != nil {
				return err
			}
			at := &isolation.Bench{
				Cluster: b.Cluster, Client: b.Client, Node: b.Node, Kernel: b.Cluster.Kernel(b.Node), NUMA: 1, CPUs: 2, Log: b.Log,
				PeerPod: c.pod,
			}
			s, err := at.Starts(ctx, c.kinds, o.levels, o.repetitions)
			if err != nil {
				return err
			}
			release, err := b.Cluster.NodeExec(ctx, b.Node, "uname -r")
			if err != nil {
				return err
			}
			part := fmt.Sprintf("\n%s, on Linux %s:\n\n%s", c.name, strings.TrimSpace(release), startTable(s)+partTable(s))
			fmt.Println(part) // what a later error does not take away
			results, broken = append(results, s), append(broken, s.Check())
			text.WriteString(part)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.Docs, picture), []byte(drawCosts(results)), 0o644); err != nil {
		return err
	}
	return errors.Join(append(broken, document.Insert(filepath.Join(b.Docs, page), target, text.String()))...)
}
