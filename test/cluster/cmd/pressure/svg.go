// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Sizes of a panel in pixels, and the room inside of it for its texts.
const (
	panelWidth, panelHeight  = 560, 340
	left, right, top, bottom = 60, 16, 92, 46
)

// draw puts the charts into one picture, two in a row.
func draw(charts []chart) string {
	rows := (len(charts) + 1) / 2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="sans-serif" font-size="12" role="img" aria-label="Memory of containers under pressure, over time">`+"\n",
		2*panelWidth, rows*panelHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%2*panelWidth, i/2*panelHeight)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c chart) draw(b *strings.Builder) {
	const plotWidth, plotHeight = panelWidth - left - right, panelHeight - top - bottom
	highest, step := c.highest()
	span := max(c.to-c.from, 1)
	x := func(seconds float64) float64 { return left + (seconds-c.from)/span*plotWidth }
	y := func(mib float64) float64 { return top + plotHeight - mib/highest*plotHeight }
	text := func(px, py float64, anchor, fill, extra, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", px, py, anchor, fill, extra, html.EscapeString(s))
	}
	rule := func(x1, y1, x2, y2 float64, stroke, extra string) {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>`+"\n", x1, y1, x2, y2, stroke, extra)
	}
	text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`, c.title)
	for i, l := range c.lines {
		row := 40 + 16*float64(i)
		rule(left, row-4, left+26, row-4, l.colour, ` stroke-width="2.5"`+dash(l.dashed))
		text(left+34, row, "start", "black", "", l.label)
	}
	for v := 0.0; v <= highest; v += step {
		rule(left, y(v), panelWidth-right, y(v), "#dddddd", "")
		text(left-6, y(v)+4, "end", grey, "", fmt.Sprintf("%g", v))
	}
	every := gridStep(span)
	for s := 0.0; s <= span; s += every {
		rule(x(c.from+s), panelHeight-bottom, x(c.from+s), panelHeight-bottom+4, grey, "")
		text(x(c.from+s), panelHeight-bottom+17, "middle", grey, "", fmt.Sprintf("%g", s))
	}
	text(left+plotWidth/2, panelHeight-10, "middle", grey, "", c.since+" (emulated machine)")
	text(0, 0, "middle", grey, fmt.Sprintf(` transform="translate(16 %d) rotate(-90)"`, top+plotHeight/2), c.yLabel)
	for _, m := range c.marks {
		if m.Seconds < c.from || m.Seconds > c.to {
			continue
		}
		rule(x(m.Seconds), top, x(m.Seconds), panelHeight-bottom, grey, ` stroke-dasharray="2 3"`)
		if m.Seconds > (c.from+c.to)/2 {
			text(x(m.Seconds)-4, top-4, "end", grey, ` font-size="11"`, m.Name)
		} else {
			text(x(m.Seconds)+4, top-4, "start", grey, ` font-size="11"`, m.Name)
		}
	}
	for _, l := range c.levels {
		rule(left, y(l.mib), panelWidth-right, y(l.mib), grey, ` stroke-dasharray="2 3"`)
		text(panelWidth-right-4, y(l.mib)+13, "end", grey, ` font-size="11"`, l.label)
	}
	// Dashed lines lie on top: what is below shows between the dashes.
	lines := slices.Clone(c.lines)
	slices.SortStableFunc(lines, func(a, b styled) int { return order(a.dashed) - order(b.dashed) })
	for _, l := range lines {
		points := make([]string, 0, len(l.Points))
		for _, p := range l.Points {
			if p.Seconds >= c.from && p.Seconds <= c.to {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.Seconds), y(p.MiB)))
			}
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2.5"%s points="%s"/>`+"\n", l.colour, dash(l.dashed), strings.Join(points, " "))
	}
	rule(left, panelHeight-bottom, panelWidth-right, panelHeight-bottom, grey, "")
	rule(left, top, left, panelHeight-bottom, grey, "")
}

func order(dashed bool) int {
	if dashed {
		return 1
	}
	return 0
}

func dash(on bool) string {
	if on {
		return ` stroke-dasharray="7 5"`
	}
	return ""
}
