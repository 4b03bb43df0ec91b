// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

// startTable returns the results as Markdown.
func startTable(s isolation.Starts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Seconds from a pod's creation until it is ready, median of %d (least to most); "+
		"×: how many times that beside no container; ratio: × of a claim to × of no claim.\n\n",
		len(s.Seconds[isolation.None][0]))
	fmt.Fprintf(&b, "| containers | %s | × |", label(isolation.None))
	rule := "|--:|--:|--:|"
	for _, kind := range isolation.ClaimKinds() {
		fmt.Fprintf(&b, " %s | × | ratio (goal: at most %.1f) |", label(kind), isolation.Goal(kind))
		rule += "--:|--:|--:|"
	}
	b.WriteString("\n" + rule + "\n")
	for i, level := range s.Levels {
		fmt.Fprintf(&b, "| %d |", level)
		for _, kind := range isolation.StartKinds() {
			times := s.Seconds[kind][i]
			fmt.Fprintf(&b, " %.1f (%.1f to %.1f) | %.2f |", s.Median(kind, i), slices.Min(times), slices.Max(times), s.Growth(kind, i))
			if kind != isolation.None {
				fmt.Fprintf(&b, " **%.2f** |", s.Ratio(kind, i))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// drawStarts draws a line of medians for each kind, and a dot for each start.
func drawStarts(s isolation.Starts) string {
	const width, height = 640, panelHeight
	p := svg.Begin(width, height, "How long pods take to start beside containers without a claim")
	most := 0.0
	for _, kind := range isolation.StartKinds() {
		for _, times := range s.Seconds[kind] {
			most = max(most, slices.Max(times))
		}
	}
	step := svg.GridStep(most * 1.05)
	highest, furthest := math.Ceil(most*1.05/step)*step, float64(max(slices.Max(s.Levels), 1))
	x := func(containers float64) float64 { return left + 12 + containers/furthest*(width-left-right-24) }
	y := func(seconds float64) float64 {
		return height - bottom - seconds/highest*(height-top-bottom)
	}
	p.Text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`,
		"How long a pod takes until it is ready, with a claim of CPUs and without")
	for v := 0.0; v <= highest; v += step {
		p.Rule(left, y(v), width-right, y(v), svg.Light, "")
		p.Text(left-6, y(v)+4, "end", svg.Grey, "", fmt.Sprintf("%g", v))
	}
	for _, level := range s.Levels {
		p.Rule(x(float64(level)), height-bottom, x(float64(level)), height-bottom+4, svg.Grey, "")
		p.Text(x(float64(level)), height-bottom+17, "middle", svg.Grey, "", fmt.Sprint(level))
	}
	p.Text((left+width-right)/2, height-10, "middle", svg.Grey, "", "containers without a claim on the node (emulated machine)")
	p.Upwards(16, (top+height-bottom)/2, svg.Grey, "seconds")
	for k, kind := range isolation.StartKinds() {
		p.Key(left, 40+16*float64(k), colour(kind), "", label(kind)+": median, and each start")
		var line [][2]float64
		for i, level := range s.Levels {
			line = append(line, [2]float64{x(float64(level)), y(s.Median(kind, i))})
			for _, seconds := range s.Seconds[kind][i] {
				p.Dot(x(float64(level)), y(seconds), 3, colour(kind))
			}
		}
		p.Line(line, colour(kind), "")
	}
	p.Rule(left, height-bottom, width-right, height-bottom, svg.Grey, "")
	p.Rule(left, top, left, height-bottom, svg.Grey, "")
	return p.End()
}
