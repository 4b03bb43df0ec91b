// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

func TestBuckets(t *testing.T) {
	_, last := bounds(0)
	require.Zero(t, last)
	for i := 1; i < buckets; i++ {
		from, to := bounds(i)
		require.Equal(t, last+1, from, "bucket %d follows the one before", i)
		require.Equal(t, i, bucketOf(from))
		require.Equal(t, i, bucketOf(to))
		require.LessOrEqual(t, to-from, from/perOctave, "bucket %d", i)
		last = to
	}
	require.Equal(t, uint64(math.MaxInt64), last)
}

// A quantile is never below the quantile of the sorted values, and at most a sixteenth above it.
func TestQuantileLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-5, 100), rapid.Int64Range(0, math.MaxInt64)), 1, 200).Draw(t, "values")
		q := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 0.5, 0.99, 0.999, 1})).Draw(t, "q")
		var h histogram
		for i, v := range values {
			h.add(v)
			values[i] = max(v, 0)
		}
		slices.Sort(values)
		want := values[max(int(math.Ceil(q*float64(len(values)))), 1)-1]
		got := h.quantile(q)
		require.GreaterOrEqual(t, got, want)
		require.LessOrEqual(t, got-want, want/perOctave)
		require.Equal(t, values[len(values)-1], h.max)
		require.Equal(t, h.max, h.quantile(1))
		var n uint64
		for _, r := range h.rows() {
			n += r[2]
		}
		require.Equal(t, uint64(len(values)), n)
	})
}

func TestEmptyHistogram(t *testing.T) {
	var h histogram
	require.Zero(t, h.quantile(0.5))
	require.Empty(t, h.rows())
}

func TestAddAllocatesNothing(t *testing.T) {
	var h histogram
	v := int64(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() { h.add(v); v += v / 3 }))
}

func TestCycle(t *testing.T) {
	line, rest, err := act([]string{"cycle", "1ms", "50ms", "mask"})
	require.NoError(t, err)
	require.Equal(t, []string{"mask"}, rest)
	c := line.(cycled)
	require.Positive(t, c.Samples)
	require.EqualValues(t, 50, int64(c.Samples)+c.Missed, "each wake-up is a sample or was missed")
	require.True(t, c.P50 <= c.P99 && c.P99 <= c.P999 && c.P999 <= c.P9999 && c.P9999 <= c.Max, "%+v", c)
	require.Contains(t, []string{"fifo", "normal"}, c.Scheduler)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	for _, key := range []string{`"p99.9":`, `"p99.99":`, `"histogram":[[`} {
		require.Contains(t, string(text), key)
	}
}

// One delay may cover several wake-ups and pass the end: wake-ups after the end are not missed.
func TestCycleCountsNothingAfterTheEnd(t *testing.T) {
	for range 20 {
		c, err := cycle(time.Microsecond, 2*time.Millisecond)
		require.NoError(t, err)
		require.EqualValues(t, 2000, int64(c.Samples)+c.Missed)
	}
}

func TestObserver(t *testing.T) {
	at := time.Unix(100, 0)
	o := observer{watched: cpuset.New(4, 5, 6)}
	steps := []struct {
		ms        int
		cpus      string
		effective string
		say       bool
		watched   string
		allowed   int
		gap       int
	}{
		{0, "0-7", "0-7", true, "4-6", 1, 0},
		{10, "0-7", "0-7", false, "4-6", 2, 10},
		{20, "0-7", "0-3,7", true, "4-6", 3, 10},
		{50, "0-3,7", "0-3,7", true, "", 3, 30},
		{60, "0-3,7", "0-3,7", false, "", 3, 30},
		{1055, "0-3,7", "0-3,7", true, "", 3, 995}, // heartbeat
		{1060, "0-3,6", "0-3,7", true, "6", 4, 995},
	}
	for i, s := range steps {
		say, err := o.sample(at.Add(time.Duration(s.ms)*time.Millisecond), int64(s.ms)*1e6, s.cpus, s.effective)
		require.NoError(t, err)
		require.Equal(t, s.say, say, "step %d", i)
		require.Equal(t, s.watched, o.last.Watched, "step %d", i)
		require.Equal(t, s.allowed, o.last.Allowed, "step %d", i)
		require.EqualValues(t, s.gap*1e6, o.last.Gap, "step %d", i)
		require.Equal(t, i+1, o.last.Samples)
	}
	_, err := o.sample(at, 0, "many", "")
	require.ErrorContains(t, err, "many")
}

func TestObserve(t *testing.T) {
	stop := make(chan os.Signal, 1)
	stop <- syscall.SIGTERM
	var out bytes.Buffer
	require.NoError(t, observe(&out, cpuset.New(0), time.Hour, stop))
	decoder := json.NewDecoder(&out)
	var first, last observed
	require.NoError(t, decoder.Decode(&first))
	require.NoError(t, decoder.Decode(&last))
	require.NotEmpty(t, first.CPUs)
	require.False(t, first.Ended)
	require.True(t, last.Ended)
	require.Equal(t, 1, last.Samples)
}
