// SPDX-License-Identifier: Apache-2.0

package pressure

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sample is the content of the cgroups' files at a time, in seconds of uptime: values by directory and key. A cgroup
// that is gone is left out.
type sample struct {
	at     float64
	values map[string]map[string]int64
}

// Keys of a sample: lines of memory.stat and memory.events, and whole files.
const (
	keyAnon, keyFile    = "anon", "file"
	keyHigh, keyOOMKill = "high", "oom_kill"
	keyCurrent, keySwap = "memory.current", "memory.swap.current"
	keyMin              = "memory.min"
)

const stopFile = "/tmp/pressure.stop"

// watchScript returns a script that prints the cgroups' values again and again, with one process for each sample, because the node
// is slow. Before each sample it writes the values of hold to their files, so that no other program's value stays there long.
func watchScript(dirs []string, hold map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rm -f %s; while [ ! -e %s ]; do read up idle </proc/uptime; echo \"at $up\"; ", stopFile, stopFile)
	files := make([]string, 0, len(hold))
	for f := range hold {
		files = append(files, f)
	}
	slices.Sort(files)
	for _, f := range files {
		fmt.Fprintf(&b, "echo %s >%s; ", hold[f], f)
	}
	b.WriteString("grep -HE '^(anon|file|high|oom_kill) |^[0-9]+$'")
	for _, d := range dirs {
		for _, f := range []string{"memory.stat", "memory.events", keyCurrent, keySwap, keyMin} {
			b.WriteString(" " + path.Join(d, f))
		}
	}
	// If the connection has ended, echo fails and the script exits.
	b.WriteString(" 2>/dev/null; echo || exit; usleep 300000; done; rm -f " + stopFile)
	return b.String()
}

// parseSamples returns the samples that watchScript has printed.
func parseSamples(text string) ([]sample, error) {
	var out []sample
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if up, ok := strings.CutPrefix(line, "at "); ok {
			at, err := strconv.ParseFloat(up, 64)
			if err != nil {
				return nil, fmt.Errorf("sample %q: %w", line, err)
			}
			out = append(out, sample{at: at, values: map[string]map[string]int64{}})
			continue
		}
		file, content, ok := strings.Cut(line, ":")
		if !ok || len(out) == 0 {
			return nil, fmt.Errorf("sample line %q: want \"at TIME\" or \"FILE:CONTENT\"", line)
		}
		key, number, ok := strings.Cut(content, " ")
		if !ok {
			key, number = path.Base(file), content
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("sample line %q: %w", line, err)
		}
		values, dir := out[len(out)-1].values, path.Dir(file)
		if values[dir] == nil {
			values[dir] = map[string]int64{}
		}
		values[dir][key] = n
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no samples in %q", text)
	}
	return out, nil
}

// line returns the values of one key of one cgroup over time, in MiB.
func line(name string, samples []sample, dir, key string) Line {
	l := Line{Name: name}
	for _, s := range samples {
		if values, ok := s.values[dir]; ok {
			l.Points = append(l.Points, Point{s.at - samples[0].at, float64(values[key]) / mib})
		}
	}
	return l
}

// last returns the last value that a cgroup had, 0 if no sample has the cgroup.
func last(samples []sample, dir, key string) int64 {
	for _, s := range slices.Backward(samples) {
		if values, ok := s.values[dir]; ok {
			return values[key]
		}
	}
	return 0
}

// watch samples the cgroups until stop is called, which returns the samples.
func (b *Bench) watch(ctx context.Context, dirs []string, hold map[string]string) (stop func() ([]sample, error)) {
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		out, err := b.Cluster.NodeExec(ctx, b.Node, watchScript(dirs, hold))
		ended <- result{out, err}
	}()
	return func() ([]sample, error) {
		defer cancel()
		if _, err := b.Cluster.NodeExec(ctx, b.Node, "touch "+stopFile); err != nil {
			cancel()
			<-ended
			return nil, err
		}
		r := <-ended
		if r.err != nil {
			return nil, r.err
		}
		return parseSamples(r.out)
	}
}
