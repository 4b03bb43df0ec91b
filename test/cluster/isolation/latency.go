// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hostprocess"
)

// Cycle is the line of the probe's action cycle: how late a thread woke up, in nanoseconds.
type Cycle struct {
	Scheduler         string
	Locked            bool
	Interval          int64
	Samples           uint64
	Missed            int64
	P50, P99          int64
	P999              int64 `json:"p99.9"`
	P9999             int64 `json:"p99.99"`
	Max               int64
	Waited, Preempted int64
	Histogram         [][3]uint64 // least and greatest value of a bucket, count
}

// Reach counts how often a hog looked which CPUs it may use, and how often a CPU of the thread's container was among them.
type Reach struct{ Samples, Allowed int }

// Latency is the result for a container of one kind.
type Latency struct {
	Kind     string
	CPUs     string // the container's
	Alone    bool   // whether the kernel shall keep all other programs off the CPUs
	Cycle    Cycle
	Pod      Reach  // of the pod that burns CPUs
	Host     Reach  // of the process of the node that burns CPUs
	Isolated string // CPUs of isolated partitions of the whole node
	Domains  int    // the most scheduling domains one of the container's CPUs is in
}

// WaitedEach is how long the thread was ready and did not run, on average for each wake-up.
func (l Latency) WaitedEach() time.Duration {
	return time.Duration(l.Cycle.Waited / int64(max(l.Cycle.Samples, 1)))
}

const (
	hogPod  = "isolation-hog"
	hogHost = "isolation-hog"
)

// Latencies measures all kinds, one after the other: the thread wakes up every interval for the duration.
func (b *Bench) Latencies(ctx context.Context, interval, duration time.Duration) ([]Latency, error) {
	var all []Latency
	var err error
	if _, b.free, err = b.cpus(ctx); err != nil {
		return nil, err
	}
	for _, kind := range Kinds(b.Kernel) {
		b.Log("wake-up latency on %s: %s", b.Node, kind)
		l, err := b.latency(ctx, kind, interval, duration)
		if err != nil {
			return nil, fmt.Errorf("latency, %s: %w", kind, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func (b *Bench) latency(ctx context.Context, kind string, interval, duration time.Duration) (l Latency, err error) {
	l.Kind, l.Alone = kind, alone(kind, b.Kernel)
	pod := "isolation-" + kind
	defer func() {
		ctx := context.WithoutCancel(ctx)
		if err = errors.Join(err, b.objects().Remove(ctx, hogPod, pod)); err == nil {
			err = b.settled(ctx)
		}
	}()
	if err := b.objects().Create(ctx, pod, b.container(kind, "sleep")); err != nil {
		return l, err
	}
	if err := b.objects().Ready(ctx, pod, time.Second); err != nil {
		return l, err
	}
	var mask struct{ CPUs string }
	if err := b.exec(ctx, pod, &mask, "mask"); err != nil {
		return l, err
	}
	l.CPUs = mask.CPUs
	if err := b.fillBalance(ctx, &l); err != nil {
		return l, err
	}
	// Pod and process look every 100 ms which CPUs they may burn. This proves which of them was kept away.
	hog := []string{"hog", "observe", l.CPUs, "100ms"}
	if err := b.objects().Create(ctx, hogPod, b.container(None, hog...)); err != nil {
		return l, err
	}
	if _, err := b.objects().Said(ctx, hogPod, "main", "hog"); err != nil {
		return l, err
	}
	host, err := hostprocess.Start(ctx, b.Cluster, b.Node, hogHost, hog...)
	if err != nil {
		return l, err
	}
	err = b.exec(ctx, pod, &l.Cycle, "cycle", interval.String(), duration.String())
	burned, ended := host.Stop(context.WithoutCancel(ctx))
	if err := errors.Join(err, ended); err != nil {
		return l, err
	}
	log, err := b.objects().Log(ctx, hogPod, "main")
	if err != nil {
		return l, err
	}
	return l, errors.Join(parseLast(burned, "observe", &l.Host), parseLast(log, "observe", &l.Pod))
}

// exec runs an action of the probe in the pod's container, beside the container's program, and decodes the action's line.
func (b *Bench) exec(ctx context.Context, pod string, into any, action ...string) error {
	args := append([]string{"exec", "--namespace", "default", pod, "--container", "main", "--", "/probe"}, action...)
	out, err := b.Cluster.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	return parseLast(out, action[0], into)
}

func (b *Bench) fillBalance(ctx context.Context, l *Latency) error {
	cpus, err := cpuset.Parse(l.CPUs)
	if err != nil {
		return fmt.Errorf("CPUs %q of the container: %w", l.CPUs, err)
	}
	balance, err := b.balance(ctx)
	if err != nil {
		return err
	}
	l.Isolated = balance.isolated
	for _, cpu := range cpus.List() {
		l.Domains = max(l.Domains, balance.domains[cpu])
	}
	return nil
}

// CheckLatencies returns nil if each kind keeps away exactly the processes that it promises to, and if a thread with a
// partition wakes up and gets a CPU sooner than a thread with the pool.
func CheckLatencies(all []Latency) error {
	var errs []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	by := map[string]Latency{}
	for _, l := range all {
		by[l.Kind] = l
		claim := l.Kind != None
		expect(l.Cycle.Samples > 0 && l.Pod.Samples > 0 && l.Host.Samples > 0, "%s: no samples: %+v", l.Kind, l)
		expect((l.Pod.Allowed == 0) == claim,
			"%s: the other pod could use CPUs %s in %d of %d samples", l.Kind, l.CPUs, l.Pod.Allowed, l.Pod.Samples)
		expect((l.Host.Allowed == 0) == l.Alone,
			"%s: the host process could use CPUs %s in %d of %d samples", l.Kind, l.CPUs, l.Host.Allowed, l.Host.Samples)
		if l.Kind == Isolated {
			expect(l.Isolated == l.CPUs && l.Domains == 0,
				"%s: CPUs %s, the kernel has %q isolated, and scheduling domains %d", l.Kind, l.CPUs, l.Isolated, l.Domains)
		} else {
			expect(l.Isolated == "" && l.Domains > 0,
				"%s: CPUs %s, the kernel has %q isolated, and scheduling domains %d", l.Kind, l.CPUs, l.Isolated, l.Domains)
		}
		if l.Alone {
			expect(l.Cycle.P99 < by[Pool].Cycle.P99,
				"%s: p99 is %d ns, that of the pool %d", l.Kind, l.Cycle.P99, by[Pool].Cycle.P99)
			expect(l.WaitedEach() < by[Pool].WaitedEach(),
				"%s: waited %s each time, with the pool %s", l.Kind, l.WaitedEach(), by[Pool].WaitedEach())
		}
	}
	return errors.Join(errs...)
}
