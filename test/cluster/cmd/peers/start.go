// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/isolation"
)

// Sizes of the picture and of its margins for texts, in pixels.
const (
	width, height            = 640, 400
	left, right, top, bottom = 64, 28, 108, 46
)

func label(kind string) string {
	return map[string]string{
		isolation.None: "no claim", isolation.Pool: "claim, pool", isolation.Partition: "claim, partition",
		isolation.Static: "kubelet's static policy", isolation.Peer: "the peer's claim", isolation.Device: "claim of a PCI device",
	}[kind]
}

// owned reports whether a container of the kind has CPUs of its own.
func owned(kind string) bool { return kind != isolation.None && kind != isolation.Device }

// startTable returns the results of one cluster as Markdown.
func startTable(s isolation.Starts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| containers | starts | %s |", label(isolation.None))
	rule, device := "|--:|--:|--:|", slices.Contains(s.Kinds, isolation.Device)
	for _, kind := range s.Kinds[1:] {
		fmt.Fprintf(&b, " %s | to no claim |", label(kind))
		rule += "--:|--:|"
		if device && owned(kind) {
			b.WriteString(" to a device |")
			rule += "--:|"
		}
		if owned(kind) {
			b.WriteString(" growth |")
			rule += "--:|"
		}
	}
	b.WriteString("\n" + rule + "\n")
	for i, l := range s.Levels {
		fmt.Fprintf(&b, "| %d | %d |", l.Containers, l.Repetitions)
		for _, kind := range s.Kinds {
			b.WriteString(seconds(l, kind))
			if kind != isolation.None {
				b.WriteString(ratio(l, kind, isolation.None))
			}
			if device && owned(kind) {
				b.WriteString(ratio(l, kind, isolation.Device))
			}
			if owned(kind) {
				fmt.Fprintf(&b, " %.2f |", s.Ratio(kind, i))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// notMeasured is the cell of a kind that a level lacks.
const notMeasured = " - |"

func seconds(l isolation.Level, kind string) string {
	if !l.Has(kind) {
		return notMeasured
	}
	return fmt.Sprintf(" %.2f (%.2f to %.2f) |", l.Median(kind), slices.Min(l.Seconds[kind]), slices.Max(l.Seconds[kind]))
}

func ratio(l isolation.Level, kind, to string) string {
	if !l.Has(kind) || !l.Has(to) {
		return notMeasured
	}
	return fmt.Sprintf(" **%.2f** |", l.Cost(kind, to))
}

// partTable returns the part of this driver's daemons in the starts of one cluster as Markdown, "" for a cluster without them.
func partTable(s isolation.Starts) string {
	if !slices.Contains(s.Kinds, isolation.Pool) {
		return ""
	}
	var b strings.Builder
	b.WriteString("| containers |")
	rule := "|--:|"
	kinds := append([]string{isolation.None}, ownedOf(s)...)
	for _, kind := range kinds {
		fmt.Fprintf(&b, " %s | part |", label(kind))
		rule += "--:|--:|"
	}
	b.WriteString("\n" + rule + "\n")
	for _, l := range s.Levels {
		fmt.Fprintf(&b, "| %d |", l.Containers)
		for _, kind := range kinds {
			times, part := l.Driver[kind], l.Part(kind)
			fmt.Fprintf(&b, " %.0f ms (%.0f to %.0f) | **%.3f** |",
				1000*part*l.Median(isolation.None), 1000*slices.Min(times), 1000*slices.Max(times), part)
		}
		b.WriteString("\n")
	}
	return "\nOf these times, the calls to this driver's two daemons:\n\n" + b.String()
}

// cpuTable returns the CPU time of this driver's daemons during the starts of one cluster as Markdown, "" without such times.
func cpuTable(s isolation.Starts) string {
	levels := slices.DeleteFunc(slices.Clone(s.Levels), func(l isolation.Level) bool { return len(l.CPU[isolation.None]) == 0 })
	if !slices.Contains(s.Kinds, isolation.Pool) || len(levels) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| containers |")
	rule := "|--:|"
	for _, kind := range s.Kinds {
		fmt.Fprintf(&b, " %s |", label(kind))
		rule += "--:|"
	}
	b.WriteString("\n" + rule + "\n")
	for _, l := range levels {
		fmt.Fprintf(&b, "| %d |", l.Containers)
		for _, kind := range s.Kinds {
			times := l.CPU[kind]
			if len(times) == 0 {
				b.WriteString(notMeasured)
				continue
			}
			fmt.Fprintf(&b, " %.0f ms (%.0f to %.0f) |", 1000*l.MedianCPU(kind), 1000*slices.Min(times), 1000*slices.Max(times))
		}
		b.WriteString("\n")
	}
	return "\nThe CPU time of this driver's two daemons during these starts, for the calls and for all other work:\n\n" + b.String()
}

// ownedOf returns the kinds with CPUs of their own.
func ownedOf(s isolation.Starts) []string {
	return slices.DeleteFunc(slices.Clone(s.Kinds), func(kind string) bool { return !owned(kind) })
}

// drawCosts draws a line for each kind of each cluster: how many times a start takes that of a pod without a claim.
func drawCosts(all []isolation.Starts) string {
	p := svg.Begin(width, height, "What CPUs of its own cost a pod when it starts beside many containers")
	most, furthest := 1.2, 1.0
	levels := make(map[int]bool)
	for _, s := range all {
		for _, l := range s.Levels {
			levels[l.Containers] = true
			furthest = max(furthest, float64(l.Containers))
			for _, kind := range ownedOf(s) {
				most = max(most, l.Cost(kind, isolation.None))
			}
		}
	}
	step := svg.GridStep(most * 1.05)
	highest := math.Ceil(most*1.05/step) * step
	x := func(containers float64) float64 { return left + 12 + containers/furthest*(width-left-right-24) }
	y := func(cost float64) float64 { return height - bottom - cost/highest*(height-top-bottom) }
	p.Text(left, 20, "start", "black", ` font-size="14" font-weight="bold"`,
		"Start of a pod with CPUs of its own, as a multiple of a pod without")
	for v := 0.0; v <= highest; v += step {
		p.Rule(left, y(v), width-right, y(v), svg.Light, "")
		p.Text(left-6, y(v)+4, "end", svg.Grey, "", fmt.Sprintf("%g", v))
	}
	for _, n := range slices.Sorted(maps.Keys(levels)) {
		p.Rule(x(float64(n)), height-bottom, x(float64(n)), height-bottom+4, svg.Grey, "")
		p.Text(x(float64(n)), height-bottom+17, "middle", svg.Grey, "", fmt.Sprint(n))
	}
	p.Text((left+width-right)/2, height-10, "middle", svg.Grey, "", "containers without a claim on the node (emulated machine)")
	p.Upwards(16, (top+height-bottom)/2, svg.Grey, "times a pod without a claim")
	colours := []string{svg.Orange, svg.Blue, svg.Green, svg.Purple}
	drawn := 0
	for _, s := range all {
		for _, kind := range ownedOf(s) {
			p.Key(left, 40+16*float64(drawn), colours[drawn], "", label(kind))
			var line [][2]float64
			for _, l := range s.Levels {
				line = append(line, [2]float64{x(float64(l.Containers)), y(l.Cost(kind, isolation.None))})
				p.Dot(x(float64(l.Containers)), y(l.Cost(kind, isolation.None)), 3, colours[drawn])
			}
			p.Line(line, colours[drawn], "")
			drawn++
		}
	}
	p.Rule(left, y(1), width-right, y(1), svg.Grey, "")
	p.Rule(left, height-bottom, width-right, height-bottom, svg.Grey, "")
	p.Rule(left, top, left, height-bottom, svg.Grey, "")
	return p.End()
}
