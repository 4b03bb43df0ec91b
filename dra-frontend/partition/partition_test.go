// SPDX-License-Identifier: Apache-2.0

package partition_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/partition"
)

var (
	errNone   = errors.New("none")
	errUnread = errors.New("unread")
)

// use returns a result of the claim in the containers.
func use(claim string, containers ...string) partition.Result {
	return partition.Result{Key: partition.Key{ClaimUID: claim, Request: "r"}, Claim: claim, Containers: containers}
}

func demands(u partition.Result) partition.Result {
	u.Demand = "cpu.isolation: partition"
	return u
}

func cannot(u partition.Result) partition.Result {
	u.Obstacle = errNone
	return u
}

func unread(u partition.Result) partition.Result {
	u.PodsErr = errUnread
	return u
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		open, prepared []partition.Result
		want           map[string]partition.Verdict
		reasons        map[string]string
	}{
		"one result": {
			open: []partition.Result{use("a", "main")},
			want: map[string]partition.Verdict{"a": partition.Granted},
		},
		"an obstacle": {
			open:    []partition.Result{cannot(use("a", "main"))},
			want:    map[string]partition.Verdict{"a": partition.NoPartition},
			reasons: map[string]string{"a": "none"},
		},
		"a demand that cannot be met": {
			open:    []partition.Result{demands(cannot(use("a", "main")))},
			want:    map[string]partition.Verdict{"a": partition.Refused},
			reasons: map[string]string{"a": "cpu.isolation: partition, but it cannot be a cpuset partition: none"},
		},
		"two results of a container": {
			open: []partition.Result{use("a", "main"), use("b", "main")},
			want: map[string]partition.Verdict{"a": partition.Granted, "b": partition.Granted},
		},
		"an obstacle spreads over containers": {
			open: []partition.Result{use("a", "x"), use("b", "x", "y"), cannot(use("c", "y")), use("d", "z")},
			want: map[string]partition.Verdict{
				"a": partition.NoPartition, "b": partition.NoPartition, "c": partition.NoPartition, "d": partition.Granted,
			},
			reasons: map[string]string{
				"a": "container x also uses claim b, request r, which is no partition: " +
					"container y also uses claim c, request r, which is no partition: none",
			},
		},
		"a demand beside an obstacle": {
			open: []partition.Result{demands(use("a", "x")), cannot(use("b", "x"))},
			want: map[string]partition.Verdict{"a": partition.Refused, "b": partition.NoPartition},
		},
		"beside a prepared partition": {
			open:     []partition.Result{use("a", "x")},
			prepared: []partition.Result{use("b", "x")},
			want:     map[string]partition.Verdict{"a": partition.Granted},
		},
		"a prepared partition stays": {
			open:     []partition.Result{cannot(use("a", "x"))},
			prepared: []partition.Result{use("b", "x")},
			want:     map[string]partition.Verdict{"a": partition.Refused},
			reasons: map[string]string{
				"a": "container x also uses claim b, which is a cpuset partition, and this request cannot be a partition: none",
			},
		},
		"beside a prepared result of the pool": {
			open:     []partition.Result{use("a", "x")},
			prepared: []partition.Result{cannot(use("b", "x"))},
			want:     map[string]partition.Verdict{"a": partition.NoPartition},
		},
		"pods that could not be read, two containers away": {
			open: []partition.Result{use("a", "x"), use("b", "x", "y"), unread(use("c", "y")), cannot(use("d", "x"))},
			want: map[string]partition.Verdict{
				"a": partition.NoPartition, "b": partition.Unknown, "c": partition.Unknown, "d": partition.NoPartition,
			},
		},
		"pods that could not be read, and no obstacle": {
			open: []partition.Result{use("a", "x"), use("b", "x", "y"), unread(use("c", "y"))},
			want: map[string]partition.Verdict{"a": partition.Unknown, "b": partition.Unknown, "c": partition.Unknown},
			reasons: map[string]string{
				"a": "container x also uses claim b: container y also uses claim c: unread",
			},
		},
		"pods that could not be read": {
			open:    []partition.Result{use("a", "x"), unread(use("b", "x")), use("c", "z")},
			want:    map[string]partition.Verdict{"a": partition.Unknown, "b": partition.Unknown, "c": partition.Granted},
			reasons: map[string]string{"a": "container x also uses claim b: unread", "b": "unread"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, reasons := make(map[string]partition.Verdict), make(map[string]string)
			for key, outcome := range partition.Decide(c.open, c.prepared) {
				got[key.ClaimUID] = outcome.Verdict
				require.Equal(t, outcome.Verdict == partition.Granted, outcome.Reason == nil)
				if _, wanted := c.reasons[key.ClaimUID]; wanted {
					reasons[key.ClaimUID] = outcome.Reason.Error()
				}
			}
			require.Equal(t, c.want, got)
			if c.reasons != nil {
				require.Equal(t, c.reasons, reasons)
			}
		})
	}
}

// A chain of results that share containers: each reason names its first and its last link, and stays short.
func TestReasonsAreBounded(t *testing.T) {
	for name, first := range map[string]partition.Result{"obstacle": cannot(use("c0", "x0")), "unread": unread(use("c0", "x0"))} {
		t.Run(name, func(t *testing.T) {
			open := []partition.Result{first}
			for i := range 50 {
				open = append(open, demands(use(fmt.Sprint("c", i+1), fmt.Sprint("x", i), fmt.Sprint("x", i+1))))
			}
			outcomes := partition.Decide(open, nil)
			reason := outcomes[open[50].Key].Reason
			require.ErrorIs(t, reason, errors.Join(first.Obstacle, first.PodsErr).(interface{ Unwrap() []error }).Unwrap()[0])
			require.Less(t, len(reason.Error()), 250)
			require.ErrorContains(t, reason, "also uses claim c49")
		})
	}
}

// Laws of every input: the order of results changes no verdict (I8), a container
// is a partition with all its decided results or with none, and a demand is
// granted or refused.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		containers := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"u", "v", "w", "x", "y", "z"}), 0, 3, rapid.ID)
		draw := func(kind string, i int) partition.Result {
			u := use(fmt.Sprint(kind, i), containers.Draw(t, "containers")...)
			if rapid.Bool().Draw(t, "obstacle") {
				u = cannot(u)
			}
			return u
		}
		var open, prepared []partition.Result
		for i := range rapid.IntRange(1, 6).Draw(t, "open") {
			u := draw("open", i)
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				u = demands(u)
			case 1:
				u = unread(u)
			}
			open = append(open, u)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "prepared") {
			prepared = append(prepared, draw("prepared", i))
		}
		got := verdicts(open, prepared)
		require.Len(t, got, len(open))
		require.Equal(t, got, verdicts(rapid.Permutation(open).Draw(t, "order"), rapid.Permutation(prepared).Draw(t, "order of prepared")))
		for _, u := range open {
			if u.Demand != "" {
				require.NotEqual(t, partition.NoPartition, got[u.Key])
			}
		}
		for _, u := range prepared {
			got[u.Key] = partition.Granted
			if u.Obstacle != nil {
				got[u.Key] = partition.NoPartition
			}
		}
		all := slices.Concat(open, prepared)
		for i, a := range all {
			for _, b := range all[i+1:] {
				meet := slices.ContainsFunc(a.Containers, func(c string) bool { return slices.Contains(b.Containers, c) })
				decided := func(v partition.Verdict) bool { return v == partition.Granted || v == partition.NoPartition }
				bothPrepared := i >= len(open)
				if meet && !bothPrepared && decided(got[a.Key]) && decided(got[b.Key]) {
					require.Equal(t, got[a.Key], got[b.Key], "%v and %v", a, b)
				}
			}
		}
	})
}

func verdicts(open, prepared []partition.Result) map[partition.Key]partition.Verdict {
	out := make(map[partition.Key]partition.Verdict)
	for key, outcome := range partition.Decide(open, prepared) {
		out[key] = outcome.Verdict
	}
	return out
}
