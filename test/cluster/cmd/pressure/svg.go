// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
)

// Sizes of a panel and of its margins for texts, in pixels.
const (
	panelWidth, panelHeight  = 560, 340
	left, right, top, bottom = 60, 16, 92, 46
)

// draw returns one picture of the charts, two in a row.
func draw(charts []chart) string {
	rows := (len(charts) + 1) / 2
	p := svg.Begin(2*panelWidth, rows*panelHeight, "Memory of containers under pressure, over time")
	for i, c := range charts {
		p.At(i%2*panelWidth, i/2*panelHeight, func() { c.draw(p) })
	}
	return p.End()
}

func (c chart) draw(p *svg.Picture) {
	const plotWidth, plotHeight = panelWidth - left - right, panelHeight - top - bottom
	highest, step := c.highest()
	span := max(c.to-c.from, 1)
	x := func(seconds float64) float64 { return left + (seconds-c.from)/span*plotWidth }
	y := func(mib float64) float64 { return top + plotHeight - mib/highest*plotHeight }
	p.Text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`, c.title)
	for i, l := range c.lines {
		row := 40 + 16*float64(i)
		p.Key(left, row, l.colour, svg.Dash(l.dashed), l.label)
	}
	for v := 0.0; v <= highest; v += step {
		p.Rule(left, y(v), panelWidth-right, y(v), svg.Light, "")
		p.Text(left-6, y(v)+4, "end", svg.Grey, "", fmt.Sprintf("%g", v))
	}
	every := svg.GridStep(span)
	for s := 0.0; s <= span; s += every {
		p.Rule(x(c.from+s), panelHeight-bottom, x(c.from+s), panelHeight-bottom+4, svg.Grey, "")
		p.Text(x(c.from+s), panelHeight-bottom+17, "middle", svg.Grey, "", fmt.Sprintf("%g", s))
	}
	p.Text(left+plotWidth/2, panelHeight-10, "middle", svg.Grey, "", c.since+" (emulated machine)")
	p.Upwards(16, top+plotHeight/2, svg.Grey, c.yLabel)
	for _, m := range c.marks {
		if m.Seconds < c.from || m.Seconds > c.to {
			continue
		}
		p.Rule(x(m.Seconds), top, x(m.Seconds), panelHeight-bottom, svg.Grey, ` stroke-dasharray="2 3"`)
		if m.Seconds > (c.from+c.to)/2 {
			p.Text(x(m.Seconds)-4, top-4, "end", svg.Grey, ` font-size="11"`, m.Name)
		} else {
			p.Text(x(m.Seconds)+4, top-4, "start", svg.Grey, ` font-size="11"`, m.Name)
		}
	}
	for _, l := range c.levels {
		p.Rule(left, y(l.mib), panelWidth-right, y(l.mib), svg.Grey, ` stroke-dasharray="2 3"`)
		p.Text(panelWidth-right-4, y(l.mib)+13, "end", svg.Grey, ` font-size="11"`, l.label)
	}
	// Dashed lines are drawn last: a line below shows between the dashes.
	lines := slices.Clone(c.lines)
	slices.SortStableFunc(lines, func(a, b styled) int { return order(a.dashed) - order(b.dashed) })
	for _, l := range lines {
		var points [][2]float64
		for _, at := range l.Points {
			if at.Seconds >= c.from && at.Seconds <= c.to {
				points = append(points, [2]float64{x(at.Seconds), y(at.MiB)})
			}
		}
		p.Line(points, l.colour, svg.Dash(l.dashed))
	}
	p.Rule(left, panelHeight-bottom, panelWidth-right, panelHeight-bottom, svg.Grey, "")
	p.Rule(left, top, left, panelHeight-bottom, svg.Grey, "")
}

func order(dashed bool) int {
	if dashed {
		return 1
	}
	return 0
}
