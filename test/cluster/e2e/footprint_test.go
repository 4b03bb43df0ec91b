// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
)

// TestFootprint reports what the daemons take on a node with more and more containers and claims, and what the start of a pod
// waits for. With -page it writes both into the page.
func TestFootprint(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	s.restartFrontend(t)
	text := "| on the node | `dra-frontend` | of it not the program's file | CPU | `nri-actuator` | of it not the program's file | CPU |\n" +
		"|---|--:|--:|--:|--:|--:|--:|\n"
	row := func(state string) {
		// 12 and 15 times refreshInterval. A minute after its start a daemon gives back pages of its program.
		const observed, settled = time.Minute, 75 * time.Second
		<-time.After(settled)
		before, began := s.usages(t), time.Now()
		<-time.After(observed)
		after := s.usages(t)
		line := "| " + state + " |"
		for _, program := range []string{"dra-frontend", "nri-actuator"} {
			now := after[program]
			line += fmt.Sprintf(" %d MiB | %d MiB | %.1f %% |", now.resident, now.own,
				100*float64(now.cpu-before[program].cpu)/float64(time.Since(began)))
			require.LessOrEqual(t, now.peak, programs[program], program)
		}
		t.Log(line) // a later failure must not lose the row
		text += line + "\n"
	}
	row("no claims")
	const crowds, perCrowd = 11, 10
	for i := range crowds {
		name := fmt.Sprintf("crowd-%d", i)
		crowd := pod(name, []string{"sleep"})
		for n := 1; n < perCrowd; n++ {
			c := *crowd.Spec.Containers[0].DeepCopy()
			c.Name = fmt.Sprintf("more-%d", n)
			crowd.Spec.Containers = append(crowd.Spec.Containers, c)
		}
		s.create(t, crowd)
		s.running(t, name)
	}
	row(fmt.Sprintf("%d containers without a claim", crowds*perCrowd))
	const pods, perPod = 2, 50
	for i := range pods {
		var claims []string
		for n := range perPod {
			claims = append(claims, fmt.Sprintf("footprint-%d-%d", i, n))
			s.claim(t, claims[n], "", capacity{"memory": "1Mi"})
		}
		name := fmt.Sprintf("footprint-%d", i)
		s.create(t, pod(name, []string{"sleep"}, claims...))
		s.running(t, name)
	}
	row(fmt.Sprintf("and %d claims, %d for each of %d containers", pods*perPod, perPod, pods))
	t.Log("\n" + text)
	s.write(t, authorFootprint, text)
}

// usages returns what each program of the node has taken.
func (s suite) usages(t *testing.T) map[string]usage {
	t.Helper()
	all := map[string]usage{}
	for program := range programs {
		all[program] = s.usageOf(t, program)
	}
	return all
}

// write writes the text of the author into the page of -page.
func (s suite) write(t *testing.T, author, text string) {
	t.Helper()
	if *page != "" {
		require.NoError(t, document.Insert(*page, author, text))
	}
}

// start is what one start of a pod has waited for.
type start struct {
	// total is the time from the pod's creation until it is ready, and scheduled the part until it has a node.
	total, scheduled time.Duration
	// prepare and calls are the times of the frontend and of the actuator.
	prepare, calls time.Duration
}

// TestStartSplits reports how the time of a pod's start splits, with a claim and without. With -page it writes that into the page.
func TestStartSplits(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	text := "| a pod with | in all | scheduler | `dra-frontend` prepares | `nri-actuator` answers the runtime | the guard " +
		"| kubelet and runtime: the rest | the driver's parts |\n|---|--:|--:|--:|--:|--:|--:|--:|\n"
	type kind struct {
		name       string
		amounts    capacity
		parameters []string
	}
	kinds := []kind{
		{"no claim", nil, nil},
		{"a claim of 1 CPU, pool", capacity{"cpu": "1"}, []string{parameters(`"cpu":{"isolation":"none"}`)}},
		{"a claim of 1 CPU and 16Mi", capacity{"cpu": "1", "memory": "16Mi"}, nil},
	}
	if s.partitions(t) {
		kinds = append(kinds, kind{
			"a claim of 1 CPU, partition", capacity{"cpu": "1"}, []string{parameters(`"cpu":{"isolation":"partition"}`)},
		})
	}
	// In turn, and not one kind after the other: what else the node does changes with time.
	all := make([][]start, len(kinds))
	const repetitions = 6
	for i := range repetitions {
		for k, kind := range kinds {
			one := s.start(t, fmt.Sprintf("split-%d-%d", k, i), kind.amounts, kind.parameters...)
			t.Logf("%s: in all %s, scheduler %s, Prepare %s, the actuator's calls %s", kind.name, one.total, one.scheduled, one.prepare, one.calls)
			if i > 0 { // the first is a warm-up
				all[k] = append(all[k], one)
			}
		}
	}
	// Last: after its boot a cluster is busy for a while.
	run := s.guardRun(t)
	for k, kind := range kinds {
		var guard time.Duration
		if kind.amounts != nil {
			guard = run
		}
		of := func(part func(start) time.Duration) time.Duration {
			var parts []time.Duration
			for _, one := range all[k] {
				parts = append(parts, part(one))
			}
			slices.Sort(parts)
			return parts[len(parts)/2]
		}
		total, scheduled := of(func(s start) time.Duration { return s.total }), of(func(s start) time.Duration { return s.scheduled })
		prepare, calls := of(func(s start) time.Duration { return s.prepare }), of(func(s start) time.Duration { return s.calls })
		text += fmt.Sprintf("| %s |", kind.name)
		for _, d := range []time.Duration{total, scheduled, prepare, calls, guard, total - scheduled - prepare - calls - guard} {
			text += fmt.Sprintf(" %d ms |", d.Milliseconds())
		}
		text += fmt.Sprintf(" %.1f %% |\n", 100*float64(prepare+calls+guard)/float64(total))
		require.Positive(t, calls, kind.name)
		require.Equal(t, kind.amounts != nil, prepare > 0, kind.name)
	}
	t.Log("\n" + text)
	s.write(t, authorStart, text)
}

// start starts a pod with a claim of the amounts, or without if there are none, and removes it.
func (s suite) start(t *testing.T, name string, amounts capacity, parameters ...string) (one start) {
	t.Helper()
	var claims []string
	if amounts != nil {
		s.claim(t, name, "", amounts, parameters...)
		claims = append(claims, name)
	}
	const (
		prepare = `cpumem_frontend_prepare_seconds_sum{result="success"}`
		calls   = "cpumem_actuator_call_seconds_sum"
	)
	preparedBefore, calledBefore := s.seconds(t, "frontend", prepare), s.seconds(t, "actuator", calls)
	watch, err := s.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	require.NoError(t, err)
	defer watch.Stop()
	began := time.Now()
	s.create(t, pod(name, []string{"sleep"}, claims...))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for one.total == 0 {
		select {
		case <-ctx.Done():
			t.Fatalf("pod %s is not ready: %v", name, ctx.Err())
		case event := <-watch.ResultChan():
			p, ok := event.Object.(*corev1.Pod)
			require.True(t, ok, "%+v", event)
			if p.Spec.NodeName != "" && one.scheduled == 0 {
				one.scheduled = time.Since(began)
			}
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				one.total = time.Since(began)
			}
		}
	}
	one.prepare = s.seconds(t, "frontend", prepare) - preparedBefore
	one.calls = s.seconds(t, "actuator", calls) - calledBefore
	s.remove(t, name)
	if amounts != nil {
		s.deleteClaim(t, name)
	}
	return one
}

// seconds returns the sum of a daemon's metric in seconds, over all labels if the name has none.
func (s suite) seconds(t *testing.T, component, name string) (sum time.Duration) {
	t.Helper()
	for line := range strings.Lines(s.metrics(t, component)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(series, "{"); series != name && base != name {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// guardRun returns the time of one run of the guard on the node, for a container that has its decision.
func (s suite) guardRun(t *testing.T) time.Duration {
	t.Helper()
	entry, err := contract.Decision{V: contract.Version, CPUs: contract.CPUs(1)}.
		Env(contract.Key{ClaimUID: "00000000-0000-4000-8000-000000000001"})
	require.NoError(t, err)
	config, err := json.Marshal(map[string]any{"process": map[string]any{"env": []string{entry}},
		"linux": map[string]any{"resources": map[string]any{"cpu": map[string]string{"cpus": "1"}}}})
	require.NoError(t, err)
	require.NotContains(t, string(config), "'", "the shell gets it in quotes")
	const runs = 20
	out, err := s.NodeExec(t.Context(), s.node, fmt.Sprintf("set -e; guard=$(ls -t /var/lib/dra-cpumem/bin/* | head -1); "+
		"dir=$(mktemp -d); printf %%s '%s' >$dir/config.json; printf '{\"id\":\"c\",\"bundle\":\"%%s\"}' $dir >$dir/state; "+
		"cut -d' ' -f1 /proc/uptime; i=0; while [ $i -lt %d ]; do $guard guard <$dir/state; i=$((i + 1)); done; "+
		"cut -d' ' -f1 /proc/uptime; rm -r $dir", config, runs))
	require.NoError(t, err)
	var before, after float64
	_, err = fmt.Sscan(out, &before, &after)
	require.NoError(t, err, "%q", out)
	require.Greater(t, after, before)
	return time.Duration((after - before) / runs * float64(time.Second))
}
