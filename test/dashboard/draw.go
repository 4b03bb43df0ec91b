// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
)

// In pixels.
const (
	columns     = 3
	panelWidth  = 400
	panelHeight = 236
	headHeight  = 34
	plotLeft    = 52
	plotTop     = 34
	plotWidth   = panelWidth - plotLeft - 18
	plotHeight  = 104
	legendTop   = plotTop + plotHeight + 34
	legendStep  = 15
	legendLines = 4
)

var colours = []string{svg.Blue, svg.Orange, svg.Green, svg.Purple, svg.Grey}

// draw returns the picture of the panels, row by row as the dashboard has them.
func draw(all []panel, s span) string {
	type placed struct {
		panel
		x, y int
	}
	var boxes []placed
	y, column := 0, 0
	for _, p := range all {
		if p.Type == "row" {
			if column > 0 {
				y += panelHeight
			}
			boxes, column = append(boxes, placed{panel: p, y: y}), 0
			y += headHeight
			continue
		}
		if column == columns {
			y, column = y+panelHeight, 0
		}
		boxes = append(boxes, placed{panel: p, x: column * panelWidth, y: y})
		column++
	}
	out := svg.Begin(columns*panelWidth, y+panelHeight, "The panels of the dashboard over "+minutes(s.to.Sub(s.from)))
	for _, box := range boxes {
		out.At(box.x, box.y, func() {
			if box.Type == "row" {
				out.Text(10, 22, "start", "black", ` font-size="15" font-weight="bold"`, box.Title)
				return
			}
			box.draw(out, s)
		})
	}
	return out.End()
}

// draw draws one panel at the origin.
func (p panel) draw(out *svg.Picture, s span) {
	out.Text(10, 22, "start", "black", ` font-weight="bold"`, p.Title)
	if len(p.lines) == 0 {
		out.Text(plotLeft+plotWidth/2, plotTop+plotHeight/2, "middle", svg.Grey, "", "no data")
		return
	}
	low, top := p.bounds()
	unit := 1.0
	if p.Config.Defaults.Unit == "bytes" {
		unit = math.Exp2(10 * math.Floor(math.Log2(math.Max(top, 1))/10))
	}
	step := unit * svg.GridStep((top-low)/unit)
	low, top = step*math.Floor(low/step), step*math.Ceil(top/step)
	top = math.Max(top, low+step)
	down := func(v float64) float64 { return plotTop + plotHeight*(top-v)/(top-low) }
	for v := low; v <= top+step/2; v += step {
		out.Rule(plotLeft, down(v), plotLeft+plotWidth, down(v), svg.Light, "")
		out.Text(plotLeft-6, down(v)+4, "end", svg.Grey, ` font-size="10"`, amount(v, p.Config.Defaults.Unit))
	}
	span := s.to.Sub(s.from)
	out.Text(plotLeft, plotTop+plotHeight+15, "start", svg.Grey, ` font-size="10"`, "0")
	out.Text(plotLeft+plotWidth, plotTop+plotHeight+15, "end", svg.Grey, ` font-size="10"`, minutes(span))
	for i, l := range p.lines {
		colour, dash := colours[i%len(colours)], svg.Dash(i >= len(colours))
		for _, piece := range pieces(l, s.step) {
			points := make([][2]float64, len(piece))
			for k, point := range piece {
				after := time.UnixMilli(point.T).Sub(s.from)
				points[k] = [2]float64{plotLeft + plotWidth*after.Seconds()/span.Seconds(), down(point.F)}
			}
			out.Line(points, colour, dash)
		}
		switch {
		case i < legendLines-1 || i == legendLines-1 && len(p.lines) == legendLines:
			out.Key(plotLeft, float64(legendTop+i*legendStep), colour, dash, shorten(l.name))
		case i == legendLines-1:
			out.Text(plotLeft+34, float64(legendTop+i*legendStep), "start", svg.Grey, "", fmt.Sprintf("and %d more", len(p.lines)-i))
		}
	}
}

func minutes(d time.Duration) string { return strconv.FormatFloat(d.Minutes(), 'f', 0, 64) + " min" }

// bounds returns the least and the greatest value of the panel, with 0 between them.
func (p panel) bounds() (low, top float64) {
	for _, l := range p.lines {
		for _, point := range l.points {
			if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
				low, top = math.Min(low, point.F), math.Max(top, point.F)
			}
		}
	}
	return low, top
}

// shorten leaves out the middle of a name that is longer than a panel is wide.
func shorten(name string) string {
	const most = 44
	if len(name) <= most {
		return name
	}
	return name[:most/2] + "…" + name[len(name)-most/2:]
}

// amount returns a value in Grafana's unit.
func amount(v float64, unit string) string {
	short := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	switch unit {
	case "bytes":
		for _, u := range []struct {
			name string
			size float64
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if v >= u.size {
				return short(v/u.size) + " " + u.name
			}
		}
		return short(v)
	case "percentunit":
		return short(100*v) + " %"
	case "s":
		if v < 1 {
			return short(1000*v) + " ms"
		}
		return short(v) + " s"
	case "ops":
		return short(v) + "/s"
	}
	return short(v)
}
