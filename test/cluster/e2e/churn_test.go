// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/internal/svg"
)

// started is one start of a pod: when it was ready, and how long that took from its creation.
type started struct{ at, took time.Duration }

// A86: TestChurn starts and removes pods with a claim, several at a time, again and again. Nothing grows. With -page it writes
// how long the starts took into the page and a picture beside it.
func TestChurn(t *testing.T) {
	longOnly(t)
	s := theSuite
	s.configure(t)
	const (
		warm, cycles = 20, 100
		atOnce       = 4 // as many as the flag -parallel lets run
	)
	s.claim(t, "churn", "", capacity{"cpu": "1", "memory": "16Mi"})
	without := s.remains(t)
	s.run(t, pod("churn", []string{"sleep"}, "churn"))
	during := s.remains(t)
	s.remove(t, "churn")
	s.deleteClaim(t, "churn")
	require.Greater(t, during.cdiFiles, without.cdiFiles, "the pod's file was counted")
	require.Greater(t, during.cgroups, without.cgroups, "the pod's cgroups were counted")

	s.churn(t, "warm", warm, atOnce)
	before, used := s.remains(t), s.usages(t)
	starts := s.churn(t, "churn", cycles, atOnce)
	// Connections and watches end a while after what they were for.
	const idle = 3
	eventually(t, "as much as before", func(context.Context) error {
		now := s.remains(t)
		if now.cdiFiles > before.cdiFiles || now.cgroups > before.cgroups || now.openFiles > before.openFiles+idle {
			return fmt.Errorf("%+v, before %+v", now, before)
		}
		return nil
	})
	minutes := starts[len(starts)-1].at.Minutes()
	text := "![A dot for each pod: how many seconds its start took, over the minutes of the run](churn.svg)\n\n" +
		fmt.Sprintf("%d pods, %d at a time, in %.0f minutes.\n\n%s\n", cycles, atOnce, minutes, shares(starts))
	for program, was := range used {
		now := s.usageOf(t, program)
		text += fmt.Sprintf("* `%s`: %d MiB after %d pods, %d MiB after %d.\n", program, was.resident, warm, now.resident, warm+cycles)
		// Resident memory moves with garbage collection: this finds a leak of 50 KiB for each pod.
		require.LessOrEqual(t, now.resident, was.resident+5, "%s: memory in MiB", program)
	}
	t.Log("\n" + text)
	s.write(t, "make bench-churn", text)
	if *page != "" {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(*page), "churn.svg"), []byte(drawChurn(starts)), 0o644))
	}
}

// churn starts and removes pods with a claim, some at once, and returns the starts in their order.
func (s suite) churn(t *testing.T, name string, count, atOnce int) []started {
	t.Helper()
	var mu sync.Mutex
	var all []started
	began := time.Now()
	t.Run(name, func(t *testing.T) {
		for worker := range atOnce {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < count; i += atOnce {
					name := fmt.Sprintf("%s-%d", name, i)
					s.claim(t, name, "", capacity{"cpu": "1", "memory": "16Mi"})
					created := time.Now()
					s.run(t, pod(name, []string{"sleep"}, name))
					mu.Lock()
					all = append(all, started{at: time.Since(began), took: time.Since(created)})
					mu.Unlock()
					s.remove(t, name)
					s.deleteClaim(t, name)
				}
			})
		}
	})
	require.Len(t, all, count)
	slices.SortFunc(all, func(a, b started) int { return cmp.Compare(a.at, b.at) })
	return all
}

// shares returns a table of how long the starts of each fifth took.
func shares(starts []started) string {
	var b strings.Builder
	b.WriteString("| pods | median | 9 of 10 within | the longest |\n|---|--:|--:|--:|\n")
	const parts = 5
	for i := range parts {
		from, to := len(starts)*i/parts, len(starts)*(i+1)/parts
		var took []time.Duration
		for _, one := range starts[from:to] {
			took = append(took, one.took)
		}
		slices.Sort(took)
		fmt.Fprintf(&b, "| %d to %d | %.1f s | %.1f s | %.1f s |\n", from+1, to, took[len(took)/2].Seconds(),
			took[len(took)*9/10].Seconds(), took[len(took)-1].Seconds())
	}
	return b.String()
}

// drawChurn draws a dot for each start.
func drawChurn(starts []started) string {
	const (
		width, height            = 640, 320
		left, right, top, bottom = 56, 20, 40, 44
	)
	p := svg.Begin(width, height, "How long each pod took to start while pods with claims came and went")
	longest := 0.0
	for _, one := range starts {
		longest = max(longest, one.took.Seconds())
	}
	step := svg.GridStep(longest)
	highest, end := math.Ceil(longest/step)*step, starts[len(starts)-1].at.Minutes()
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
		p.Dot(x(one.at.Minutes()), y(one.took.Seconds()), 3, svg.Blue)
	}
	return p.End()
}
