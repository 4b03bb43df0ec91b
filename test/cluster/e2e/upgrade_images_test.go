// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

var previous = flag.String("previous", "", "tag of the images of an earlier commit, which are among -images")

// A53, A80: each daemon is replaced by an earlier version and back, one after the
// other, while pods start as fast as the nodes start them. So each version of one daemon
// works with each version of the other. No pod fails.
func TestA53_Versions(t *testing.T) {
	longOnly(t)
	if *previous == "" {
		t.Skip("no images of an earlier commit: PREVIOUS=commit make e2e")
	}
	for name, layout := range map[string][]string{"two pods": {slowNode}, "one pod": {slowNode, "layout=sidecar"}} {
		t.Run(name, func(t *testing.T) {
			s := theSuite
			s.configure(t, layout...)
			r := rush{suite: s, has: map[string]cpuset.CPUSet{}}
			stop := r.begin(t)
			actuator, frontend := "actuator.image.tag="+*previous, "frontend.image.tag="+*previous
			for _, images := range [][]string{{actuator}, {actuator, frontend}, {frontend}, {}} {
				s.configure(t, append(images, layout...)...)
				before := r.count()
				eventually(t, "pods started", func(context.Context) error {
					if now := r.count(); now < before+4 && r.failed() == nil {
						return fmt.Errorf("%d since the change of the images", now-before)
					}
					return nil
				})
				require.NoError(t, r.failed())
			}
			stop()
			require.NoError(t, r.failed())
			t.Logf("%d pods started, the slowest in %s", r.started, r.longest.Round(time.Second))
		})
	}
}

// rush starts pods with claims on all nodes, as many as the nodes start.
type rush struct {
	suite
	mu      sync.Mutex
	started int
	longest time.Duration
	err     error
	// has are the CPUs of the running pods, by node and pod.
	has map[string]cpuset.CPUSet
}

func (r *rush) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}

func (r *rush) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// begin starts two pods at a time on each node, one after the other. stop waits until
// all of them are gone.
func (r *rush) begin(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for _, n := range r.NodeNames() {
		for worker := range 2 {
			workers.Go(func() {
				for i := 0; ctx.Err() == nil && r.failed() == nil; i++ {
					if err := r.one(n, fmt.Sprintf("a53-%s-%d-%d", n, worker, i), worker); err != nil {
						r.mu.Lock()
						r.err = errors.Join(r.err, err)
						r.mu.Unlock()
					}
				}
			})
		}
	}
	stop = func() { cancel(); workers.Wait() }
	t.Cleanup(stop)
	return stop
}

// one is the life of a pod with a claim of a CPU, and memory. It is never restarted.
func (r *rush) one(node, name string, numa int) (err error) {
	ctx := context.Background()
	pods := objects.Objects{Client: r.client, Node: node}
	claim := objects.Claim{NUMA: numa, Parameters: `"cpu":{"isolation":"none"}`, Amounts: objects.Amounts{
		"cpu": *resource.NewQuantity(1, resource.DecimalSI), "memory": *resource.NewQuantity(memory, resource.BinarySI),
	}}
	began := time.Now()
	defer func() {
		r.mu.Lock()
		delete(r.has, node+"/"+name)
		r.mu.Unlock()
		err = errors.Join(err, pods.Remove(ctx, name))
	}()
	if err := pods.Create(ctx, name, objects.Container{Name: "main", Claim: &claim, Args: []string{"observe", "0", "50ms"}}); err != nil {
		return err
	}
	var ended error
	err = objects.Eventually(ctx, "pod "+name, 300*time.Millisecond, func(ctx context.Context) error {
		p, err := pods.Pod(ctx, name)
		if err != nil {
			return err
		}
		switch p.Status.Phase {
		case corev1.PodFailed, corev1.PodSucceeded:
			ended = fmt.Errorf("pod %s: %s, containers %+v; events: %s", name, p.Status.Phase, p.Status.ContainerStatuses, r.events(ctx, p.UID))
			return nil
		case corev1.PodRunning:
			return nil
		}
		return fmt.Errorf("phase %s; events: %s", p.Status.Phase, r.events(ctx, p.UID))
	})
	if err := errors.Join(err, ended); err != nil {
		return err
	}
	l := lives{suite: r.on(node)}
	seen, err := l.seen(ctx, name, "main")
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.longest = r.started+1, max(r.longest, time.Since(began))
	own := seen[0].cpus
	if own.Size() != 1 {
		return fmt.Errorf("%s/%s began on %s, its claim is of one CPU", node, name, own)
	}
	for other, its := range r.has {
		if strings.HasPrefix(other, node+"/") && !its.Intersection(own).IsEmpty() {
			return fmt.Errorf("%s/%s began on %s, %s is on %s", node, name, own, other, its)
		}
	}
	r.has[node+"/"+name] = own
	return nil
}
