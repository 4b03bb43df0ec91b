// SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// Times are the times of a benchmark's operations. Their mean hides the few slow ones that somebody waits for.
type Times struct{ all []time.Duration }

// NewTimes has room for the times of a usual benchmark, so that the times count little towards its allocations.
func NewTimes() *Times { return &Times{make([]time.Duration, 0, 1<<12)} }

// Measure does an operation, and keeps how long it took.
func (t *Times) Measure(operation func()) {
	began := time.Now()
	operation()
	t.all = append(t.all, time.Since(began))
}

// Report adds the time within which 99 of 100 operations were done to the benchmark's results.
func (t *Times) Report(b *testing.B) {
	b.Helper()
	if len(t.all) > 0 {
		b.ReportMetric(float64(t.within(0.99).Nanoseconds()), "p99-ns/op")
	}
}

// within returns the time within which the part of the operations was done.
func (t *Times) within(part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(t.all))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// Controls measures arithmetic, which needs no memory and no system call. The difference between the mean and the time of 99 of 100
// operations is the host's part, which other benchmarks have as well.
func Controls(b *testing.B) {
	b.Helper()
	for _, rounds := range []int{10_000, 50_000, 100_000} {
		b.Run(fmt.Sprintf("%d multiplications", rounds), func(b *testing.B) {
			times, product := NewTimes(), uint64(1)
			for b.Loop() {
				times.Measure(func() {
					for range rounds {
						product *= 6364136223846793005
					}
				})
			}
			if product == 0 {
				b.Fatal("the product of odd numbers is 0")
			}
			times.Report(b)
		})
	}
}
