// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/objects"
)

// batch are pods that are created at once.
type batch struct {
	name string
	// claims is the number of pods with a claim, of a CPU and memory.
	claims int
	// pods without a claim have containers each.
	pods, containers int
	// restarted gives the pods the restart policy Always instead of Never.
	restarted bool
}

func (b batch) claimed() (names []string) {
	for i := range b.claims {
		names = append(names, fmt.Sprintf("%s-claim-%d", b.name, i))
	}
	return names
}

func (b batch) plain() (names []string) {
	for i := range b.pods {
		names = append(names, fmt.Sprintf("%s-plain-%d", b.name, i))
	}
	return names
}

func (b batch) all() []string { return append(b.claimed(), b.plain()...) }

// memory is the amount of a claim, as memory.min has it.
const memory = 16 << 20

// start creates the pods. The end of the test removes them and waits until no cgroup of
// theirs is left: 60 containers that are being stopped would be one more fault for the
// next batch.
func (b batch) start(t *testing.T, l *lives) {
	t.Helper()
	pods := objects.Objects{Client: l.client, Node: l.node, Restarted: b.restarted}
	t.Cleanup(func() {
		ctx := context.Background()
		cgroups, err := b.cgroups(ctx, l)
		require.NoError(t, errors.Join(err, pods.Remove(ctx, b.all()...)))
		// An emulated node takes minutes to stop 60 containers.
		require.NoError(t, objects.Eventually(ctx, "cgroups of batch "+b.name+" gone", 3*time.Second, func(ctx context.Context) error {
			left, err := l.NodeExec(ctx, l.node, "find /sys/fs/cgroup -maxdepth 3 -type d"+cgroups)
			if err == nil && left != "" {
				err = fmt.Errorf("there are %s", left)
			}
			return err
		}))
	})
	for i, name := range b.claimed() {
		claim := objects.Claim{NUMA: i, Parameters: `"cpu":{"isolation":"` + l.isolation + `"}`, Amounts: objects.Amounts{
			"cpu": *resource.NewQuantity(1, resource.DecimalSI), "memory": *resource.NewQuantity(memory, resource.BinarySI),
		}}
		c := objects.Container{Name: "main", Claim: &claim, Args: []string{"observe", "0", "500ms"}}
		require.NoError(t, pods.Create(t.Context(), name, c))
	}
	for _, name := range b.plain() {
		var containers []objects.Container
		for i := range b.containers {
			// The first sample is taken at once.
			containers = append(containers, objects.Container{Name: fmt.Sprintf("c%d", i), Args: []string{"observe", observable, "10s"}})
		}
		require.NoError(t, pods.Create(t.Context(), name, containers...))
	}
}

// cgroups returns what find takes to find the cgroups of the pods: their UIDs, in which
// systemd's names have other separators.
func (b batch) cgroups(ctx context.Context, l *lives) (expression string, err error) {
	or := " "
	for _, name := range b.all() {
		p, err := l.pods().Pod(ctx, name)
		if err != nil {
			return "", err
		}
		expression += or + "-name '*pod" + strings.ReplaceAll(string(p.UID), "-", "?") + "*'"
		or = " -o "
	}
	return " \\(" + expression + " \\)", nil
}

// runs waits until all containers run. A container that has ended fails the test,
// unless its pod restarts it.
func (b batch) runs(t *testing.T, l *lives) {
	t.Helper()
	for _, name := range b.all() {
		containers := 1
		if slices.Contains(b.plain(), name) {
			containers = b.containers
		}
		// Minutes for each container: kubelet starts a pod's containers one after the
		// other, and one takes an emulated node ten seconds and more.
		for n := range containers {
			err := objects.Eventually(t.Context(), "pod "+name, time.Second, func(ctx context.Context) error {
				return b.runsAtLeast(ctx, t, l, name, n+1)
			})
			require.NoError(t, err)
		}
	}
	for _, name := range b.claimed() {
		p, err := l.pods().Pod(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(memory), l.cgroup(t, p, "main", "memory.min"), name)
	}
}

// runsAtLeast returns an error unless n containers of the pod run.
func (b batch) runsAtLeast(ctx context.Context, t *testing.T, l *lives, name string, n int) error {
	t.Helper()
	p, err := l.pods().Pod(ctx, name)
	if err != nil {
		return err
	}
	running, waits := 0, corev1.ContainerStatus{}
	for _, c := range p.Status.ContainerStatuses {
		if ended := c.State.Terminated; ended != nil && !b.restarted {
			t.Fatalf("pod %s: container %s has failed: %+v; events: %s", name, c.Name, ended, l.events(ctx, p.UID))
		}
		if c.State.Running != nil {
			running++
		} else {
			waits = c
		}
	}
	if running < n {
		return fmt.Errorf("phase %s, %d containers run, container %s: %+v; events: %s",
			p.Status.Phase, running, waits.Name, waits.State, l.events(ctx, p.UID))
	}
	return nil
}

// note records the lives of the containers with claims so far.
func (b batch) note(ctx context.Context, l *lives) error {
	var errs []error
	for _, name := range b.claimed() {
		p, err := l.pods().Pod(ctx, name)
		if err == nil {
			err = l.note(ctx, name, p.Status.ContainerStatuses[0].ContainerID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// claimless returns what each container without a claim has observed.
func (b batch) claimless(t *testing.T, l *lives) (all [][]stretch) {
	t.Helper()
	for _, name := range b.plain() {
		for i := range b.containers {
			seen, err := l.seen(t.Context(), name, fmt.Sprintf("c%d", i))
			require.NoError(t, err)
			all = append(all, seen)
		}
	}
	return all
}

// report logs when the last containers started.
func (b batch) report(t *testing.T, l *lives, fault time.Duration) {
	t.Helper()
	last := func(names []string) time.Duration {
		var longest time.Duration
		for _, name := range names {
			p, err := l.pods().Pod(t.Context(), name)
			require.NoError(t, err)
			for _, c := range p.Status.ContainerStatuses {
				longest = max(longest, startedAt(c).Sub(p.CreationTimestamp.Time))
			}
		}
		return longest
	}
	t.Logf("the fault lasted %s; the last of %d containers without a claim started %s after its pod, the last of %d with a claim %s",
		fault.Round(time.Second), b.pods*b.containers, last(b.plain()), b.claims, last(b.claimed()))
}

func startedAt(c corev1.ContainerStatus) time.Time {
	if c.State.Running == nil {
		return time.Time{}
	}
	return c.State.Running.StartedAt.Time
}
