// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/document"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

func latencies() []isolation.Latency {
	var all []isolation.Latency
	for i, kind := range isolation.Kinds(cluster.KernelNewest) {
		scale := uint64(1000 >> (2 * i))
		all = append(all, isolation.Latency{
			Kind: kind, CPUs: "2-3", Domains: max(0, 3-i),
			Pod: isolation.Reach{Samples: 600, Allowed: max(0, 300-300*i)}, Host: isolation.Reach{Samples: 600},
			Cycle: isolation.Cycle{
				Scheduler: "normal", Interval: 2e6, Samples: 1000, Missed: 500, Waited: 1e6, Preempted: 7,
				P50: int64(100 * scale), P99: int64(1000 * scale), P999: int64(2000 * scale), P9999: int64(5000 * scale), Max: int64(5000 * scale),
				Histogram: [][3]uint64{{100 * scale, 110 * scale, 900}, {150 * scale, 160 * scale, 95}, {5000 * scale, 5100 * scale, 5}},
			},
		})
	}
	all[3].Isolated = "2-3"
	return all
}

func TestTables(t *testing.T) {
	text := latencyTable(latencies())
	for _, want := range []string{
		"A wake-up every 2.0 ms for 3 s, scheduler normal, memory not locked",
		"| no claim | 2-3 | 1000 | 100 | **1000** | 2000 | - | 5000 |",
		"| **0.25** | 1.0 | 7 | 500 |",
		"| no claim | in 300 of 600 samples | **never** (600 samples) | empty | 3 |",
		"| claim, isolated partition | **never** (600 samples) | **never** (600 samples) | 2-3 | 0 |",
	} {
		require.Contains(t, text, want)
	}
	require.Empty(t, latencyTable(nil))
}

// p99.99 of fewer than 10,000 samples is the greatest sample.
func TestTables_P9999(t *testing.T) {
	all := latencies()
	all[0].Cycle.Samples, all[1].Cycle.Samples = 9999, 10000
	text := latencyTable(all)
	require.Contains(t, text, "| no claim | 2-3 | 9999 | 100 | **1000** | 2000 | - | 5000 |")
	require.Contains(t, text, "| claim, pool | 2-3 | 10000 | 25 | **250** | 500 | 1250 | 1250 |")
}

func TestPictures(t *testing.T) {
	picture := drawLatency(latencies())
	for _, want := range []string{"a. How late", "b. How many", "claim, isolated partition", ">0.1 %<", ">1000<"} {
		require.Contains(t, picture, want)
	}
	require.NotContains(t, picture, "NaN")
	require.NotContains(t, picture, "Inf")
	require.Contains(t, drawLatency([]isolation.Latency{{Kind: isolation.None}}), "</svg>")
}

// Both panels count every wake-up of a histogram, and the share of later wake-ups never rises with the time.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := isolation.Cycle{}
		at := uint64(0)
		for range rapid.IntRange(1, 30).Draw(t, "buckets") {
			from := at + rapid.Uint64Range(0, 1e6).Draw(t, "gap")
			n := rapid.Uint64Range(1, 1e4).Draw(t, "count")
			c.Histogram, c.Samples, at = append(c.Histogram, [3]uint64{from, from, n}), c.Samples+n, from+1
		}
		sum := 0.0
		for _, p := range histogramOf(c) {
			sum += p.share
		}
		require.InDelta(t, 1, sum, 1e-9)
		later := laterThan(c)
		require.InDelta(t, 1, later[0].share, 1e-9)
		for i := range later[1:] {
			require.LessOrEqual(t, later[i+1].share, later[i].share)
			require.GreaterOrEqual(t, later[i+1].us, later[i].us)
		}
		require.Positive(t, later[len(later)-1].share)
	})
}

// The document has the marks between which the command writes.
func TestDocumentHasMarks(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("../../../../docs/explanation", page))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, page), data, 0o644))
	for _, kernel := range []string{cluster.KernelStable, cluster.KernelBackports, cluster.KernelNewest} {
		require.NoError(t, document.Insert(filepath.Join(dir, page), place(kernel), "new\n"))
	}
}
