// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

// Sizes of a panel and of its margins for texts, in pixels.
const (
	panelWidth, panelHeight  = 560, 400
	left, right, top, bottom = 64, 28, 108, 46
)

func label(kind string) string {
	return map[string]string{
		isolation.None: "no claim", isolation.Pool: "claim, pool",
		isolation.Partition: "claim, partition", isolation.Isolated: "claim, isolated partition", isolation.Quiet: "claim, quiet",
	}[kind]
}

func colour(kind string) string {
	return map[string]string{
		isolation.None: svg.Grey, isolation.Pool: svg.Orange, isolation.Partition: svg.Blue, isolation.Isolated: svg.Green,
		isolation.Quiet: svg.Purple,
	}[kind]
}

// enoughForP9999 is the number of samples from which on p99.99 is not the greatest sample.
const enoughForP9999 = 10000

// latencyTable returns the results as Markdown, times in microseconds; empty without results.
func latencyTable(all []isolation.Latency) string {
	var b strings.Builder
	if len(all) == 0 {
		return ""
	}
	c := all[0].Cycle
	memory := "memory not locked"
	if c.Locked {
		memory = "memory locked"
	}
	// Each multiple of the interval is a sample or missed.
	duration := float64(int64(c.Samples)+c.Missed) * float64(c.Interval) / 1e9
	fmt.Fprintf(&b, "A wake-up every %.1f ms for %.0f s, scheduler %s, %s. Microseconds.\n\n",
		float64(c.Interval)/1e6, duration, c.Scheduler, memory)
	b.WriteString("| | CPUs | samples | p50 | p99 | p99.9 | p99.99 | max | p99 to that of no claim | waited for a CPU, each " +
		"| preempted | missed |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	us := func(ns int64) string { return fmt.Sprintf("%.0f", float64(ns)/1e3) }
	for _, l := range all {
		c, p9999 := l.Cycle, "-"
		if c.Samples >= enoughForP9999 {
			p9999 = us(c.P9999)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | **%s** | %s | %s | %s | **%.2f** | %.1f | %d | %d |\n", label(l.Kind), l.CPUs, c.Samples,
			us(c.P50), us(c.P99), us(c.P999), p9999, us(c.Max), float64(c.P99)/float64(max(all[0].Cycle.P99, 1)),
			float64(l.WaitedEach().Nanoseconds())/1e3, c.Preempted, c.Missed)
	}
	b.WriteString("\n| | the other pod could use these CPUs | the host process could | `cpuset.cpus.isolated` of the root " +
		"| scheduling domains of these CPUs |\n|---|---|---|---|--:|\n")
	reach := func(r isolation.Reach) string {
		if r.Allowed == 0 {
			return fmt.Sprintf("**never** (%d samples)", r.Samples)
		}
		return fmt.Sprintf("in %d of %d samples", r.Allowed, r.Samples)
	}
	for _, l := range all {
		isolated := "empty"
		if l.Isolated != "" {
			isolated = l.Isolated
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d |\n", label(l.Kind), reach(l.Pod), reach(l.Host), isolated, l.Domains)
	}
	return b.String()
}

// point is a lateness in microseconds and a share of all wake-ups, 0 to 1.
type point struct{ us, share float64 }

// histogramOf returns the share of wake-ups in each bin of a quarter of a power of two. Empty bins in between have share 0.
func histogramOf(c isolation.Cycle) []point {
	const perOctave = 4
	bins, first, last := map[int]uint64{}, math.MaxInt, math.MinInt
	for _, row := range c.Histogram {
		bin := int(math.Floor(math.Log2(max(float64(row[0]), 1)/1e3) * perOctave))
		bins[bin] += row[2]
		first, last = min(first, bin), max(last, bin)
	}
	var points []point
	for bin := first; bin <= last; bin++ {
		points = append(points, point{math.Exp2((float64(bin) + 0.5) / perOctave), float64(bins[bin]) / float64(c.Samples)})
	}
	return points
}

// laterThan returns for each bucket the share of wake-ups that were as late as its least value, or later.
func laterThan(c isolation.Cycle) []point {
	var points []point
	rest := c.Samples
	for _, row := range c.Histogram {
		points = append(points, point{max(float64(row[0]), 1) / 1e3, float64(rest) / float64(c.Samples)})
		rest -= row[2]
	}
	return points
}

// drawLatency draws two panels with logarithmic axes.
func drawLatency(all []isolation.Latency) string {
	p := svg.Begin(2*panelWidth, panelHeight, "How late a thread wakes up beside others that burn CPUs")
	panels := []struct {
		title, y string
		of       func(isolation.Cycle) []point
	}{
		{"a. How late wake-ups were", "share of wake-ups", histogramOf},
		{"b. How many were later than that", "share of wake-ups that were later", laterThan},
	}
	// Both panels have the same axes.
	from, to, least := math.Inf(1), math.Inf(-1), 1.0
	for _, l := range all {
		for _, panel := range panels {
			for _, at := range panel.of(l.Cycle) {
				from, to = min(from, math.Floor(math.Log10(at.us))), max(to, math.Ceil(math.Log10(at.us)))
				if at.share > 0 {
					least = min(least, at.share)
				}
			}
		}
	}
	if math.IsInf(from, 0) {
		return p.End()
	}
	to = max(to, from+1)
	decades := max(math.Ceil(-math.Log10(least)), 1)
	for i, panel := range panels {
		p.At(i*panelWidth, 0, func() {
			x := func(us float64) float64 { return left + (math.Log10(us)-from)/(to-from)*(panelWidth-left-right) }
			y := func(share float64) float64 {
				return top + min(-math.Log10(share)/decades, 1)*(panelHeight-top-bottom) // share 0 is at the floor
			}
			p.Text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`, panel.title)
			for d := 0.0; d <= decades; d++ {
				share := math.Pow(10, -d)
				p.Rule(left, y(share), panelWidth-right, y(share), svg.Light, "")
				p.Text(left-6, y(share)+4, "end", svg.Grey, "", fmt.Sprintf("%g %%", 100*share))
			}
			for d := from; d <= to; d++ {
				us := math.Pow(10, d)
				p.Rule(x(us), top, x(us), panelHeight-bottom, svg.Light, "")
				p.Text(x(us), panelHeight-bottom+17, "middle", svg.Grey, "", fmt.Sprintf("%g", us))
			}
			p.Text((left+panelWidth-right)/2, panelHeight-10, "middle", svg.Grey, "", "microseconds late (emulated machine)")
			p.Upwards(14, (top+panelHeight-bottom)/2, svg.Grey, panel.y)
			for k, l := range all {
				var line [][2]float64
				for _, at := range panel.of(l.Cycle) {
					line = append(line, [2]float64{x(at.us), y(at.share)})
				}
				dashed := svg.Dash(l.Kind == isolation.Isolated)
				p.Key(left, 40+16*float64(k), colour(l.Kind), dashed, label(l.Kind))
				p.Line(line, colour(l.Kind), dashed)
			}
			p.Rule(left, panelHeight-bottom, panelWidth-right, panelHeight-bottom, svg.Grey, "")
			p.Rule(left, top, left, panelHeight-bottom, svg.Grey, "")
		})
	}
	return p.End()
}
