// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// promises is how many promises the story has. Fewer are kept if one is broken or
// the story ends early.
const promises = 15

// report is what the newcomer reads: the story on out, signs of progress on progress.
type report struct {
	out, progress io.Writer
	began         time.Time
	sections      int
	kept          int
}

func (r *report) heading(format string, args ...any) {
	r.sections++
	title := fmt.Sprintf("%d. %s", r.sections, fmt.Sprintf(format, args...))
	fmt.Fprintf(r.out, "\n%s\n%s\n", title, strings.Repeat("-", len(title)))
}

func (r *report) line(format string, args ...any) {
	fmt.Fprintf(r.out, "  "+format+"\n", args...)
}

// block prints text indented.
func (r *report) block(text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		r.line("  %s", strings.TrimRight(line, "\n"))
	}
}

// promise prints text as kept if got equals want, else as broken with both values.
func (r *report) promise(text string, want, got any) {
	if reflect.DeepEqual(want, got) {
		r.kept++
		r.line("[kept]   %s", text)
		return
	}
	r.line("[BROKEN] %s: want %v, got %v", text, want, got)
}

func (r *report) say(format string, args ...any) {
	fmt.Fprintf(r.progress, "[%4.0f s] %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// step runs do, and prints what it is and how long it took. Package cluster prints a line for each part.
func (r *report) step(what string, do func() error) error {
	r.say("%s", what)
	begin := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(begin); took > time.Second {
		r.say("  done in %.0f s", took.Seconds())
	}
	return nil
}

// clusterLog returns the writer for the progress lines of package cluster.
func (r *report) clusterLog() io.Writer { return clusterLog{r} }

type clusterLog struct{ *report }

// Write implements io.Writer; package cluster writes a line at a time,
// "cluster   1.0 s: text".
func (l clusterLog) Write(p []byte) (int, error) {
	_, text, found := strings.Cut(string(p), " s: ")
	if !found {
		text = string(p)
	}
	l.say("  %s", strings.TrimSpace(text))
	return len(p), nil
}

// size adds the readable form to a number of bytes.
func size(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Value() < 1024 {
		return text
	}
	return text + " = " + resource.NewQuantity(q.Value(), resource.BinarySI).String()
}

// pretty indents JSON and returns all other text as it is.
func pretty(text string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		return text
	}
	return b.String()
}
