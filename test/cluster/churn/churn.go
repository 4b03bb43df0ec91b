// SPDX-License-Identifier: Apache-2.0

// Package churn shows how long the starts of pods take while pods come and go: as a table, and as a picture. The case
// TestChurn of package e2e measures them.
package churn

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
)

// Start is one start of a pod: when the pod was ready, counted from the begin of the run, and how long that took from its creation.
type Start struct{ At, Took time.Duration }

// Table returns a Markdown table of how long the starts of each fifth took. There are at least five, in the order of At.
func Table(starts []Start) string {
	var b strings.Builder
	b.WriteString("| pods | median | 9 of 10 within | the longest |\n|---|--:|--:|--:|\n")
	const parts = 5
	for i := range parts {
		from, to := len(starts)*i/parts, len(starts)*(i+1)/parts
		var took []time.Duration
		for _, one := range starts[from:to] {
			took = append(took, one.Took)
		}
		slices.Sort(took)
		fmt.Fprintf(&b, "| %d to %d | %.1f s | %.1f s | %.1f s |\n", from+1, to, took[len(took)/2].Seconds(),
			took[(len(took)*9+9)/10-1].Seconds(), took[len(took)-1].Seconds())
	}
	return b.String()
}

// Draw returns an SVG picture with a dot for each start. There is at least one, and they are in the order of At.
func Draw(starts []Start) string {
	const (
		width, height            = 640, 320
		left, right, top, bottom = 56, 20, 40, 44
	)
	p := svg.Begin(width, height, "How long each pod took to start while pods with claims came and went")
	longest := 0.0
	for _, one := range starts {
		longest = max(longest, one.Took.Seconds())
	}
	step := svg.GridStep(longest)
	highest, end := math.Ceil(longest/step)*step, starts[len(starts)-1].At.Minutes()
	x := func(minutes float64) float64 { return left + minutes/end*(width-left-right) }
	y := func(seconds float64) float64 { return height - bottom - seconds/highest*(height-top-bottom) }
	p.Text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`, "Start of each pod with a claim")
	for v := 0.0; v <= highest; v += step {
		p.Rule(left, y(v), width-right, y(v), svg.Light, "")
		p.Text(left-6, y(v)+4, "end", svg.Grey, "", fmt.Sprintf("%g", v))
	}
	for m := 0.0; m <= end; m += svg.GridStep(end) {
		p.Text(x(m), height-bottom+17, "middle", svg.Grey, "", fmt.Sprintf("%g", m))
	}
	p.Text((left+width-right)/2, height-10, "middle", svg.Grey, "", "minutes (emulated machine)")
	p.Upwards(14, (top+height-bottom)/2, svg.Grey, "seconds")
	for _, one := range starts {
		p.Dot(x(one.At.Minutes()), y(one.Took.Seconds()), 3, svg.Blue)
	}
	return p.End()
}
