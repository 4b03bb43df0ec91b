// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/bits"
)

// A histogram has one bucket for each value below 16, then 16 buckets for each power of two, so that a bucket is at
// most a sixteenth of its values wide.
const (
	bucketBits = 4
	perOctave  = 1 << bucketBits
	buckets    = (64 - bucketBits) * perOctave
)

// histogram counts values; add allocates nothing. Its zero value is empty.
type histogram struct {
	counts [buckets]uint64
	total  uint64
	max    int64
}

func (h *histogram) add(v int64) {
	v = max(v, 0)
	h.counts[bucketOf(uint64(v))]++
	h.total++
	h.max = max(h.max, v)
}

func bucketOf(v uint64) int {
	if v < perOctave {
		return int(v)
	}
	octave := bits.Len64(v) - 1 - bucketBits
	return (octave+1)*perOctave + int(v>>octave)&(perOctave-1)
}

// bounds returns the least and the greatest value of a bucket.
func bounds(bucket int) (from, to uint64) {
	if bucket < perOctave {
		return uint64(bucket), uint64(bucket)
	}
	octave := bucket/perOctave - 1
	from = uint64(perOctave+bucket%perOctave) << octave
	return from, from + 1<<octave - 1
}

// quantile returns a value that at least the share q (0 to 1) of the values does not exceed. It is at most a sixteenth
// above the least such value.
func (h *histogram) quantile(q float64) int64 {
	rank := max(uint64(math.Ceil(q*float64(h.total))), 1)
	seen := uint64(0)
	for i, n := range h.counts {
		if seen += n; seen >= rank {
			_, to := bounds(i)
			return int64(min(to, uint64(h.max)))
		}
	}
	return h.max
}

// rows returns the buckets that are not empty: least value, greatest value, count.
func (h *histogram) rows() [][3]uint64 {
	rows := [][3]uint64{}
	for i, n := range h.counts {
		if n > 0 {
			from, to := bounds(i)
			rows = append(rows, [3]uint64{from, to, n})
		}
	}
	return rows
}
