// SPDX-License-Identifier: Apache-2.0

// Package svg draws the parts of pictures of measurements: text, rules and lines on a white ground. Its callers, the
// tests' commands isolation, pressure and dashboard, give axes and lines their meaning.
package svg

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Colours that all people can distinguish (Okabe and Ito).
const (
	Blue   = "#0072b2"
	Orange = "#d55e00"
	Green  = "#009e73"
	Purple = "#cc79a7"
	Grey   = "#555555"
	Light  = "#dddddd"
)

// Picture is a picture under construction; Begin starts it, End returns it.
type Picture struct{ b strings.Builder }

// Begin starts a picture of width × height pixels; label says in words what it shows.
func Begin(width, height int, label string) *Picture {
	p := &Picture{}
	fmt.Fprintf(&p.b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" `+
		`font-family="sans-serif" font-size="12" role="img" aria-label="%[3]s">`+"\n",
		width, height, html.EscapeString(label))
	p.b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	return p
}

// End returns the whole picture.
func (p *Picture) End() string { return p.b.String() + "</svg>\n" }

// At calls draw with x, y as the origin.
func (p *Picture) At(x, y int, draw func()) {
	fmt.Fprintf(&p.b, `<g transform="translate(%d %d)">`+"\n", x, y)
	draw()
	p.b.WriteString("</g>\n")
}

// Text writes at a point. anchor is start, middle or end; extra has further attributes, each after a blank.
func (p *Picture) Text(x, y float64, anchor, fill, extra, text string) {
	fmt.Fprintf(&p.b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n",
		x, y, anchor, fill, extra, html.EscapeString(text))
}

// Upwards writes from bottom to top, with the middle of the text at the point.
func (p *Picture) Upwards(x, y int, fill, text string) {
	p.Text(0, 0, "middle", fill, fmt.Sprintf(` transform="translate(%d %d) rotate(-90)"`, x, y), text)
}

// Rule draws a straight line.
func (p *Picture) Rule(x1, y1, x2, y2 float64, stroke, extra string) {
	fmt.Fprintf(&p.b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"%s/>`+"\n", x1, y1, x2, y2, stroke, extra)
}

// Dot draws a small circle.
func (p *Picture) Dot(x, y, radius float64, fill string) {
	fmt.Fprintf(&p.b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="%s" fill-opacity="0.6"/>`+"\n", x, y, radius, fill)
}

// Line connects points.
func (p *Picture) Line(points [][2]float64, stroke, extra string) {
	words := make([]string, 0, len(points))
	for _, at := range points {
		words = append(words, fmt.Sprintf("%.1f,%.1f", at[0], at[1]))
	}
	fmt.Fprintf(&p.b, `<polyline fill="none" stroke="%s" stroke-width="2.5"%s points="%s"/>`+"\n", stroke, extra, strings.Join(words, " "))
}

// Key writes the line of a legend.
func (p *Picture) Key(x, y float64, stroke, extra, label string) {
	p.Rule(x, y-4, x+26, y-4, stroke, ` stroke-width="2.5"`+extra)
	p.Text(x+34, y, "start", "black", "", label)
}

// Dash returns the extra of a dashed line, empty if on is false.
func Dash(on bool) string {
	if on {
		return ` stroke-dasharray="7 5"`
	}
	return ""
}

// GridStep returns the least step of 1, 2 or 5 times a power of ten that gives at most six grid lines.
func GridStep(span float64) float64 {
	if span <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/6)))
	for _, m := range []float64{1, 2, 5} {
		if span/(m*power) <= 6 {
			return m * power
		}
	}
	return 10 * power
}
