// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pressure"
)

// chart is one panel: MiB over seconds.
type chart struct {
	title  string
	yLabel string
	lines  []styled
	marks  []pressure.Mark // vertical
	levels []level         // horizontal
	from   float64         // seconds; the axis shows it as 0
	to     float64
	since  string // the label of the axis of seconds
}

type styled struct {
	pressure.Line
	label, colour string
	dashed        bool
}

type level struct {
	label string
	mib   float64
}

const ofEach = "seconds since it began to grow"

// fromItsStart drops the points before the line begins to rise and counts seconds from there: the containers of a pod
// start one after the other.
func fromItsStart(l pressure.Line) pressure.Line {
	highest, first := 0.0, 0
	for _, p := range l.Points {
		highest = max(highest, p.MiB)
	}
	for first+1 < len(l.Points) && l.Points[first+1].MiB < highest/8 {
		first++
	}
	moved := pressure.Line{Name: l.Name}
	for _, p := range l.Points[first:] {
		moved.Points = append(moved.Points, pressure.Point{Seconds: p.Seconds - l.Points[first].Seconds, MiB: p.MiB})
	}
	return moved
}

// charts returns the four panels of the two runs.
func charts(r pressure.Reclaim, l pressure.Limits) []chart {
	labels := map[string]string{
		pressure.Protected:   "protected by the driver, at every level",
		pressure.LeafOnly:    "the container's memory.min alone",
		pressure.Unprotected: "no protection",
	}
	reclaim := func(title string, lines []pressure.Line) chart {
		c := chart{title: title, yLabel: "MiB in RAM", since: "seconds", marks: []pressure.Mark{r.Reads, r.Maps}}
		for _, line := range lines {
			s := styled{Line: line, label: labels[line.Name]}
			s.colour, s.dashed = map[string]string{
				pressure.Protected: svg.Blue, pressure.LeafOnly: svg.Green, pressure.Unprotected: svg.Orange,
			}[line.Name], line.Name == pressure.LeafOnly
			c.lines = append(c.lines, s)
		}
		c.from = max(0, r.Reads.Seconds-10)
		c.to = r.End.Seconds
		return c
	}
	limits := func(title, since string, at level, names map[string]string, colours map[string]string) chart {
		c := chart{title: title, yLabel: "memory.current, MiB", since: since, levels: []level{at}, from: math.Inf(1)}
		for _, line := range l.Current {
			if names[line.Name] == "" || len(line.Points) == 0 {
				continue
			}
			if since == ofEach {
				line = fromItsStart(line)
			}
			c.lines = append(c.lines, styled{
				Line: line, label: names[line.Name], colour: colours[line.Name], dashed: line.Name == pressure.Other,
			})
			c.from = min(c.from, line.Points[0].Seconds)
			c.to = max(c.to, line.Points[len(line.Points)-1].Seconds)
		}
		return c
	}
	return []chart{
		reclaim("a. Page cache: a neighbour reads files", r.Cache),
		reclaim("b. Anonymous memory: a neighbour maps too much", r.Anon),
		limits("c. Going over memory.high slows down", ofEach,
			level{fmt.Sprintf("memory.high %.0f MiB", l.HighMiB), l.HighMiB},
			map[string]string{pressure.Throttled: "with memory.high", pressure.Free: "without"},
			map[string]string{pressure.Throttled: svg.Blue, pressure.Free: svg.Orange}),
		limits("d. Going over memory.max ends the offender alone", "seconds",
			level{fmt.Sprintf("memory.max %.0f MiB", l.MaxMiB), l.MaxMiB},
			map[string]string{
				pressure.Offender: "goes over its claim", pressure.Neighbour: "the same pod's other container",
				pressure.Other: "another pod",
			},
			map[string]string{pressure.Offender: svg.Orange, pressure.Neighbour: svg.Blue, pressure.Other: svg.Green}),
	}
}

// highest returns the top of the chart's y axis and the step of its grid, in MiB.
func (c chart) highest() (top, step float64) {
	for _, l := range c.lines {
		for _, p := range l.Points {
			top = max(top, p.MiB)
		}
	}
	for _, l := range c.levels {
		top = max(top, l.mib)
	}
	step = svg.GridStep(top * 1.08)
	return math.Ceil(top*1.08/step) * step, step
}
