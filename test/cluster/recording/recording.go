// SPDX-License-Identifier: Apache-2.0

// Package recording makes a picture of a terminal from what the demo printed. The picture has the sections that show
// what a user gets, line after line; the files between the daemons and the paths of cgroups are left out.
package recording

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
)

// sections are the demo's sections in the picture, by their numbers.
var sections = []string{"1", "3", "5", "7", "8"}

var (
	heading = regexp.MustCompile(`^([0-9]+)\. .+`)
	rule    = regexp.MustCompile(`^-+$`)
	escape  = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	end     = regexp.MustCompile(`^demo: [0-9]+ of [0-9]+ promises kept`)
)

// Lines returns the lines of the demo's output that the picture has. The error says that the output is not of a whole
// demo.
func Lines(output string) ([]string, error) {
	lines := []string{"$ make demo"}
	shown, ended := false, false
	for line := range strings.Lines(escape.ReplaceAllString(output, "")) {
		line = strings.TrimRight(line, " \r\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			if shown = slices.Contains(sections, m[1]); shown {
				lines = append(lines, "", line)
			}
			continue
		}
		if end.MatchString(line) {
			lines, ended = append(lines, "", line), true
		}
		if shown && line != "" && !rule.MatchString(line) && !strings.HasPrefix(line, "[") && !strings.HasPrefix(line, "    dra.cpumem-") {
			lines = append(lines, line)
		}
		if line == "" {
			shown = false
		}
	}
	if !ended {
		return nil, errors.New("the output has no line with the number of kept promises: give what a whole make demo printed")
	}
	return lines, nil
}

// Sizes of the picture in pixels, and in seconds the time between two lines.
const (
	width, lineHeight, margin = 860, 18, 16
	pause                     = 0.25
)

// SVG returns the picture. Lines appear one after the other, all at once for readers who want no motion.
func SVG(lines []string) string {
	var b strings.Builder
	height := 2*margin + lineHeight*len(lines)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" `+
		`aria-label="What make demo prints">`+"\n", width, height)
	b.WriteString(`<style>
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d4d4d4; white-space: pre }
.heading { fill: #ffffff; font-weight: bold }
.kept { fill: #7ec699 }
@media (prefers-reduced-motion: no-preference) {
  text { opacity: 0; animation: appear 0.1s forwards }
  @keyframes appear { to { opacity: 1 } }
}
</style>
<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>
`)
	for i, line := range lines {
		if line == "" {
			continue
		}
		class := ""
		switch {
		case heading.MatchString(line), strings.HasPrefix(line, "$ "):
			class = ` class="heading"`
		case strings.HasPrefix(line, "  [kept]"), end.MatchString(line):
			class = ` class="kept"`
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve"%s style="animation-delay: %.2fs">%s</text>`+"\n",
			margin, margin+lineHeight*i+lineHeight*3/4, class, pause*float64(i), html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
