// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

const (
	// slowNode makes the guard wait longer than by default: on an emulated node the
	// daemons take long to come back.
	slowNode = "config.guardWait=1m30s"
	// between is how long both daemons are there until their pods are deleted again.
	// On an emulated node they are away for longer than that.
	between = 30 * time.Second
	// alive is how many pods run at a time.
	alive = 4
)

// starts returns how many pods start one after the other on each node: STEPS=50 or
// more for all of A80.
func starts() int { return min(max(12, *steps-10), 40) }

// A80: both daemons go and come back again and again, while pods with claims start
// one after the other. All pods run, each on CPUs of its own from its first
// instruction, and none is ever restarted.
func TestA80_Upgrades(t *testing.T) {
	longOnly(t)
	theSuite.configure(t, slowNode)
	oneDriverAtATime(t, "a80", upgrades)
}

// oneDriverAtATime is drivers without concurrency: the guard waits for daemons that
// start, which takes a busy emulated node longer than a container start may take.
func oneDriverAtATime(t *testing.T, name string, run func(t *testing.T, s suite, name string)) {
	for _, n := range []string{node, wide} {
		s := theSuite.on(n)
		t.Run(s.CgroupDriver(n), func(t *testing.T) { run(t, s, name+"-"+n) })
	}
}

func upgrades(t *testing.T, s suite, name string) {
	stop := s.deleteDaemons(t)
	kinds := []struct {
		amounts    capacity
		parameters string
	}{
		{capacity{"cpu": "1"}, `"cpu":{"isolation":"none"}`},
		{capacity{"cpu": "1", "memory": "32Mi"}, `"cpu":{"isolation":"none"}`},
	}
	if s.partitions(t) {
		kinds[0].parameters = `"cpu":{"isolation":"partition"}`
	}
	has := map[string]cpuset.CPUSet{} // of the pods that run
	var order []string
	var longest time.Duration
	for i := range starts() {
		if len(order) == alive {
			s.remove(t, order[0])
			s.deleteClaim(t, order[0])
			delete(has, order[0])
			order = order[1:]
		}
		one, kind := fmt.Sprintf("%s-%02d", name, i), kinds[i%len(kinds)]
		s.claim(t, one, "", kind.amounts, parameters(kind.parameters))
		p := pod(one, []string{"mask", "sleep"}, one)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		created := time.Now()
		s.create(t, p)
		own := s.firstCPUs(t, one)
		longest = max(longest, time.Since(created))
		require.Equal(t, 1, own.Size(), "%s runs on %s", one, own)
		for other, its := range has {
			require.True(t, its.Intersection(own).IsEmpty(), "%s is on %s, %s on %s", one, own, other, its)
		}
		has[one], order = own, append(order, one)
	}
	t.Logf("%d pods, daemons deleted %d times, longest start %s", starts(), stop(), longest.Round(time.Second))
	eventually(t, "daemons back", s.ready)
	for _, one := range order {
		p := s.running(t, one)
		require.Equal(t, has[one].String(), s.cgroup(t, p, "main", "cpuset.cpus"), one)
	}
}

// firstCPUs waits for the first line of the pod's program and returns the CPUs on which
// the program began. A failed pod fails the test at once, because it is not restarted.
func (s suite) firstCPUs(t *testing.T, name string) cpuset.CPUSet {
	t.Helper()
	eventually(t, "pod "+name+" running", func(ctx context.Context) error {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
		if err != nil {
			return err
		}
		switch p.Status.Phase {
		case corev1.PodFailed, corev1.PodSucceeded:
			t.Fatalf("pod %s: %s, containers %+v; events: %s", name, p.Status.Phase, p.Status.ContainerStatuses, s.events(ctx, p.UID))
		case corev1.PodRunning:
			return nil
		}
		return fmt.Errorf("phase %s; events: %s", p.Status.Phase, s.events(ctx, p.UID))
	})
	return cpus(t, s.lines(t, name, "mask")["mask"].CPUs)
}

// deleteDaemons deletes the pods of both daemons on the node again and again, each
// time after they are back. stop ends this and returns the number of deletions.
func (s suite) deleteDaemons(t *testing.T) (stop func() (times int)) {
	ctx, cancel := context.WithCancel(t.Context())
	times, failed := 0, error(nil)
	var worker sync.WaitGroup
	worker.Go(func() {
		for ctx.Err() == nil {
			err := s.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
				FieldSelector: "spec.nodeName=" + s.node, LabelSelector: "app.kubernetes.io/component in (actuator,frontend,node)",
			})
			if err == nil {
				times++
				err = objects.Eventually(ctx, "daemons back", time.Second, s.ready)
			}
			if err == nil {
				select {
				case <-ctx.Done():
				case <-time.After(between):
				}
			}
			if err != nil && ctx.Err() == nil {
				failed = err
				return
			}
		}
	})
	stop = func() int {
		cancel()
		worker.Wait()
		return times
	}
	t.Cleanup(func() {
		stop()
		require.NoError(t, failed)
	})
	return stop
}

// A80: the actuator is away for a minute between a claim's preparation and the
// creation of its container. The pod starts if the guard waits that long, and fails
// with the reason if it does not.
func TestA80_ActuatorAwayForAMinute(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t, slowNode)
	create := func(name string) (proceed func()) {
		t.Helper()
		s.claim(t, name, "", capacity{"cpu": "1", "memory": "32Mi"})
		p := pod(name, []string{"mask", "sleep"}, name)
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, proceed = s.prepared(t, p)
		return proceed
	}
	state := func(ctx context.Context, name string) (phase corev1.PodPhase, message string) {
		p, err := s.client.CoreV1().Pods("default").Get(ctx, name, getOptions)
		if err != nil {
			return "", err.Error()
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil {
				return corev1.PodRunning, ""
			}
			if c.State.Terminated != nil {
				message = c.State.Terminated.Message
			}
		}
		return p.Status.Phase, message + "; events: " + s.events(ctx, p.UID)
	}

	proceed := create("a80-waits")
	start := s.stopActuator(t)
	proceed()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for away := time.Now(); time.Since(away) < time.Minute; <-tick.C {
		phase, message := state(t.Context(), "a80-waits")
		require.NotEqual(t, corev1.PodRunning, phase, "it runs without its decision")
		require.NotEqual(t, corev1.PodFailed, phase, message)
	}
	start()
	require.Equal(t, 1, s.firstCPUs(t, "a80-waits").Size())
	s.remove(t, "a80-waits")

	s.configure(t, "config.guardWait=5s")
	proceed = create("a80-fails")
	s.stopActuator(t)
	proceed()
	eventually(t, "refused by the guard", func(ctx context.Context) error {
		phase, message := state(ctx, "a80-fails")
		if phase == corev1.PodRunning {
			t.Fatal("it runs without its decision")
		}
		if phase != corev1.PodFailed {
			return fmt.Errorf("phase %s: %s", phase, message)
		}
		require.Contains(t, message, "refused after 5s: ")
		require.Contains(t, message, "lacks what nri-actuator gives it: cpuset.cpus is unset, the claim's decision is")
		return nil
	})
}
