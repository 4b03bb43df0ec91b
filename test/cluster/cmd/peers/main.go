// SPDX-License-Identifier: Apache-2.0

// Command peers compares what CPUs of its own cost a pod when it starts beside more and more containers without: a claim of
// this driver, the static policy of kubelet's CPU manager, and another driver if the user gives one. Each has a cluster of
// one node of its own, and pods without a claim in it as the control, so that the ratios compare. The results go into docs
// as tables and a picture, and as numbers, so that one contender can be measured again alone. The exit code is 1 if the
// start of a pod with a claim grows more than it should.
//
// The flow: main.go makes the clusters one after the other with package bench, package isolation measures, results.go keeps
// the numbers, start.go writes and draws.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/bench"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

const (
	target  = "make bench-peers"
	page    = "isolation-report.md"
	picture = "isolation-start.svg"
	numbers = "isolation-start.json"
	// secondDriver is the driver of the kind [isolation.Device].
	secondDriver = "pcidriver/driver.yaml"
)

type options struct {
	peer        string
	only        string
	levels      []int
	repetitions int
}

func main() {
	b := &bench.Bench{Name: "peers", Make: target}
	b.Flags(flag.CommandLine)
	o := options{levels: []int{0, 20, 40, 80, 200}}
	const usage = "numbers of containers beside the pod: rising multiples of 10 (default 0,20,40,80,200)"
	flag.Func("levels", usage, func(list string) (err error) {
		o.levels, err = levels(list)
		return err
	})
	flag.StringVar(&o.peer, "peer", "", "directory of another driver: image archives *.tar, install.yaml, and pod.yaml with NAME "+
		"for the name of a pod with a claim of 2 CPUs; empty: none")
	flag.StringVar(&o.only, "only", "", "measure one contender: driver, static or peer; empty: all. "+
		"All other contenders keep the numbers of the earlier run")
	flag.IntVar(&o.repetitions, "repetitions", 8, "starts of each kind beside each number of containers; "+
		"a multiple of 4 gives each kind each place in the order, and each other kind directly before it in a round, equally often. "+
		"Beside a number of containers with more starts in the numbers of an earlier run, the earlier result stays")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal gets the default handling, which ends the process.
	context.AfterFunc(ctx, stop)
	if err := compare(ctx, b, o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// levels returns the numbers of a list such as 0,20,40.
func levels(list string) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	for i, n := range all {
		if n < 0 || i > 0 && n <= all[i-1] || n%isolation.PerPod != 0 {
			return nil, fmt.Errorf("%v must be rising multiples of %d", all, isolation.PerPod)
		}
	}
	return all, nil
}

// contender is what one cluster measures.
type contender struct {
	id      string
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
		s.InstructionClock = true
		return s
	}
	static := options()
	static.Kubelet = map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
	all := []contender{
		{
			id: "driver", name: "This driver", options: options(),
			install: func(ctx context.Context) error {
				if err := b.Install(ctx, "metrics.enabled=true", "metrics.from[0].ipBlock.cidr=0.0.0.0/0"); err != nil {
					return err
				}
				return apply(ctx, b.Cluster, secondDriver)
			},
			kinds: []string{isolation.None, isolation.Device, isolation.Pool, isolation.Partition},
		},
		{
			id: "static", name: "Kubelet's static policy", options: static, install: func(context.Context) error { return nil },
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
		id: "peer", name: "The peer, " + filepath.Base(peer), options: other, kinds: []string{isolation.None, isolation.Peer}, pod: pod,
		install: func(ctx context.Context) error { return apply(ctx, b.Cluster, filepath.Join(peer, "install.yaml")) },
	}), nil
}

// apply makes the objects of a file, and waits until all pods are ready.
func apply(ctx context.Context, c *cluster.Cluster, file string) error {
	if _, err := c.Kubectl(ctx, "apply", "-f", file); err != nil {
		return err
	}
	return objects.Eventually(ctx, "all pods ready", time.Second, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "wait", "--all-namespaces", "--all", "--for=condition=Ready", "--timeout=1m", "pods")
		return err
	})
}

// compare measures the contenders, and writes numbers, page and picture after each of them.
func compare(ctx context.Context, b *bench.Bench, o options) error {
	all, err := contenders(b, o.peer)
	if err != nil {
		return err
	}
	known, err := readResults(filepath.Join(b.Docs, numbers))
	if err != nil {
		return err
	}
	if o.only != "" && !slices.ContainsFunc(all, func(c contender) bool { return c.id == o.only }) {
		return fmt.Errorf("-only %s: no such contender, or its directory is not given (-peer)", o.only)
	}
	var broken []error
	for _, c := range all {
		if o.only != "" && o.only != c.id {
			continue
		}
		err := b.Run(ctx, c.options, func(ctx context.Context) error {
			if err := c.install(ctx); err != nil {
				return err
			}
			release, err := b.Cluster.NodeExec(ctx, b.Node, "uname -r")
			if err != nil {
				return err
			}
			at := &isolation.Bench{
				Cluster: b.Cluster, Client: b.Client, Node: b.Node, Kernel: b.Cluster.Kernel(b.Node), NUMA: 1, CPUs: 2, Log: b.Log,
				PeerPod: c.pod,
			}
			s, err := at.Starts(ctx, c.kinds, o.levels, o.repetitions)
			if len(s.Levels) == 0 {
				return err
			}
			known = known.with(result{ID: c.id, Name: c.name, Kernel: strings.TrimSpace(release), Starts: s.Summary()})
			broken = append(broken, known.of(c.id).Check())
			return errors.Join(err, known.write(b.Docs))
		})
		if err != nil {
			return errors.Join(append(broken, fmt.Errorf("%s: %w", c.name, err))...)
		}
	}
	return errors.Join(broken...)
}
