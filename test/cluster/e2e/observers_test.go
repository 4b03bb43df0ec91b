// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hostprocess"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

var (
	steps = flag.Int("steps", 10, "starts, ends and restarts that the observers see")
	seed  = flag.Uint64("seed", 0, "of their order; 0: another each time")
)

// stretch is a time (ns of the node's clock) in which every sample saw a program
// allowed to run on the CPUs.
type stretch struct {
	cpus     cpuset.CPUSet
	from, to int64
}

// stretches returns the stretches in an observer's output.
func stretches(output string) ([]stretch, error) {
	var out []stretch
	for text := range strings.Lines(output) {
		var line struct {
			CPUs, Error       string
			Monotonic, Before int64
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil || line.Error != "" {
			return nil, errors.Join(fmt.Errorf("observer says %q", text), err)
		}
		set, err := cpuset.Parse(line.CPUs)
		if err != nil {
			return nil, err
		}
		if n := len(out); n > 0 {
			out[n-1].to = line.Before
		}
		out = append(out, stretch{cpus: set, from: line.Monotonic, to: line.Monotonic})
	}
	return out, nil
}

// observable are the CPUs that the observers ask for: all of the wide node.
const observable = "0-15"

// lives are the containers with claims, by ID: each from its first instruction
// until at least its last line.
type lives struct {
	suite
	mu    sync.Mutex
	all   map[string]stretch
	steps atomic.Int64
	// isolation is the isolation of the claims.
	isolation string
	// host is an observer beside the pods.
	host *hostprocess.Process
}

// observers starts an observer in a pod and one beside the pods. Each takes a sample
// every interval.
func observers(t *testing.T, s suite, interval string) *lives {
	t.Helper()
	l := &lives{suite: s, all: map[string]stretch{}, isolation: "none"}
	if s.partitions(t) {
		l.isolation = "partition"
	}
	host, err := hostprocess.Start(t.Context(), s.Cluster, s.node, "observer", "observe", observable, interval)
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := host.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l.host = host
	s.create(t, pod("observer", []string{"observe", observable, interval}))
	s.running(t, "observer")
	return l
}

func (l *lives) pods() objects.Objects {
	return objects.Objects{Client: l.client, Node: l.node, Restarted: true}
}

// seen returns the stretches that the pod's container has printed. It tries again,
// because kubelet answers with an error text while the runtime is away.
func (l *lives) seen(ctx context.Context, name, container string) (seen []stretch, err error) {
	err = objects.Eventually(ctx, "output of "+name, time.Second, func(ctx context.Context) error {
		text, err := l.pods().Log(ctx, name, container)
		if err != nil {
			return err
		}
		if seen, err = stretches(text); err == nil && len(seen) == 0 {
			err = errors.New("it has said nothing yet")
		}
		return err
	})
	return seen, err
}

// hostSeen returns what the observer beside the pods has observed.
func (l *lives) hostSeen(ctx context.Context) ([]stretch, error) {
	output, err := l.host.Output(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := stretches(output[:strings.LastIndex(output, "\n")+1])
	if err == nil && len(seen) == 0 {
		err = errors.New("it has said nothing yet")
	}
	return seen, err
}

// note records the life of the pod's container so far, from the container's own output.
func (l *lives) note(ctx context.Context, name, id string) error {
	seen, err := l.seen(ctx, name, "main")
	if err != nil {
		return err
	}
	life := seen[0]
	for _, s := range seen {
		if !s.cpus.Equals(life.cpus) {
			return fmt.Errorf("pod %s was on %s and then on %s", name, life.cpus, s.cpus)
		}
		life.to = s.to
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[id] = life
	return nil
}

// runs waits until the pod has a running container other than before, and returns its ID.
func (l *lives) runs(ctx context.Context, name, before string) (id string, err error) {
	err = objects.Eventually(ctx, "container of "+name, 300*time.Millisecond, func(ctx context.Context) error {
		p, err := l.pods().Pod(ctx, name)
		if err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		c := p.Status.ContainerStatuses[0]
		id = c.ContainerID
		if c.State.Running == nil || id == before {
			return fmt.Errorf("container %+v", c.State)
		}
		return nil
	})
	if err == nil {
		_, err = l.seen(ctx, name, "main")
	}
	return id, err
}

// live is the life of one claim: its pod starts, the container may be killed and
// restarted, and the pod is removed.
func (l *lives) live(ctx context.Context, name string, numa int, random *rand.Rand) (err error) {
	claim := objects.Claim{NUMA: numa, Parameters: `"cpu":{"isolation":"` + l.isolation + `"}`,
		Amounts: objects.Amounts{"cpu": *resource.NewQuantity(1+random.Int64N(3), resource.DecimalSI)}}
	c := objects.Container{Name: "main", Claim: &claim, Args: []string{"observe", "0", "50ms"}}
	if err := l.pods().Create(ctx, name, c); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.pods().Remove(context.WithoutCancel(ctx), name)) }()
	l.steps.Add(1)
	id, err := l.runs(ctx, name, "")
	if err != nil {
		return err
	}
	if random.IntN(2) == 0 {
		if err := l.note(ctx, name, id); err != nil {
			return err
		}
		pod, err := l.pods().Pod(ctx, name)
		if err != nil {
			return err
		}
		dir := l.below(l.levelDir("besteffort"), "pod"+string(pod.UID))
		if _, err := l.NodeExec(ctx, l.node, "kill -9 $(head -1 "+l.containerDir(dir, id)+"/cgroup.procs)"); err != nil {
			return err
		}
		l.steps.Add(1)
		if id, err = l.runs(ctx, name, id); err != nil {
			return err
		}
	}
	if err := l.note(ctx, name, id); err != nil {
		return err
	}
	l.steps.Add(1)
	return nil
}

// disturb waits until all daemons are ready, and restarts a program that claims need.
func (l *lives) disturb(ctx context.Context, random *rand.Rand) error {
	if err := objects.Eventually(ctx, "daemons back", time.Second, l.ready); err != nil {
		return err
	}
	l.steps.Add(1)
	now := int64(0)
	switch what := []string{"actuator", "actuator", "actuator", "frontend", "frontend", "containerd", "kubelet"}[random.IntN(7)]; what {
	case "kubelet":
		_, err := l.NodeExec(ctx, l.node, "service restart kubelet")
		return err
	case "containerd":
		_, err := l.NodeExec(ctx, l.node, "service kill containerd; service start containerd")
		return err
	default:
		return l.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{
			FieldSelector: "spec.nodeName=" + l.node, LabelSelector: "app.kubernetes.io/component=" + what,
		})
	}
}

// I1, A36: from the first instruction of a claim's container to its end, no other
// pod may run on the claim's CPUs, and no process of the machine at all if they are
// a partition's. This holds whatever starts, ends or restarts meanwhile.
func TestExclusive_Observers(t *testing.T) {
	longOnly(t)
	s := theSuite.on(wide)
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d steps, seed %d", *steps, *seed)
	l := observers(t, s, "20ms")

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var workers, disturber sync.WaitGroup
	for zone := range 3 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(*seed, uint64(zone)))
			for i := 0; l.steps.Load() < int64(*steps) && ctx.Err() == nil; i++ {
				if err := l.live(ctx, fmt.Sprintf("observed-%d-%d", zone, i), zone, random); err != nil {
					cancel(err)
				}
			}
		})
	}
	done := make(chan struct{})
	disturber.Go(func() {
		random := rand.New(rand.NewPCG(*seed, 1000))
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for next := int64(4); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if l.steps.Load() < next {
				continue
			}
			if err := l.disturb(ctx, random); err != nil {
				cancel(err)
			}
			next = l.steps.Load() + 4 + random.Int64N(8)
		}
	})
	workers.Wait()
	close(done)
	disturber.Wait()
	require.NoError(t, context.Cause(ctx))
	eventually(t, "daemons back", func(ctx context.Context) error { return s.ready(ctx) })

	l.compare(t)
	t.Logf("%d containers, %d steps", len(l.all), l.steps.Load())
	if l.isolation != "none" {
		s.becomes(t, observable, cgroupMount, "cpuset.cpus.effective")
		s.becomes(t, "", cgroupMount, "cpuset.cpus.isolated")
		s.becomes(t, "", s.levelDir(""), "cpuset.cpus.exclusive")
	}
}

// compare checks that neither the observers nor the containers without a claim could
// ever run on the CPUs of a container with a claim.
func (l *lives) compare(t *testing.T, claimless ...[]stretch) {
	t.Helper()
	seen := map[string][]stretch{}
	for i, s := range claimless {
		seen[fmt.Sprintf("claimless container %d", i)] = s
	}
	observers := map[string]func(ctx context.Context) ([]stretch, error){
		"pod observer": func(ctx context.Context) ([]stretch, error) { return l.seen(ctx, "observer", "main") },
	}
	if l.isolation != "none" {
		observers["host observer"] = l.hostSeen
	}
	ended := int64(0)
	for _, life := range l.all {
		ended = max(ended, life.to)
	}
	for who, read := range observers {
		// The output of a container comes late.
		eventually(t, "output of the "+who, func(ctx context.Context) (err error) {
			if seen[who], err = read(ctx); err != nil {
				return err
			}
			if to := seen[who][len(seen[who])-1].to; to <= ended {
				return fmt.Errorf("it ends at %d, the lives of the claims' containers at %d", to, ended)
			}
			return nil
		})
	}
	for who, observed := range seen {
		for id, life := range l.all {
			for _, o := range observed {
				if o.from <= life.to && o.to >= life.from && !o.cpus.Intersection(life.cpus).IsEmpty() {
					t.Errorf("the %s could run on %s from %d to %d, while container %s had %s from %d to %d",
						who, o.cpus, o.from, o.to, id, life.cpus, life.from, life.to)
				}
			}
		}
	}
}
