// SPDX-License-Identifier: Apache-2.0

// Command mutate changes a package's source, a change at a time, and runs tests: a
// change that no test notices is a fault that no test would find. It prints these
// changes and a score, and fails below a goal.
//
// The known tools for Go change no conditions of a switch and leave out no statements,
// and they build the tests again for each change. This one builds them once, with all
// changes in the source and one of them selected when a test runs, and runs for a change
// only the tests that come by it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	r := run{out: os.Stdout}
	flag.StringVar(&r.module, "module", "", "directory of the module")
	flag.StringVar(&r.dir, "package", "", "directory of the package to change, below the module")
	tests := flag.String("tests", "", "directories whose tests run, below the module, separated by commas; empty for the package's own")
	flag.StringVar(&r.file, "file", "", "change this file of the package only")
	flag.StringVar(&r.equivalent, "equivalent", "mutate/equivalent.txt", "file with the changes that change no behaviour, and why")
	flag.DurationVar(&r.timeout, "timeout", 5*time.Minute, "the longest time of a test without a change")
	flag.DurationVar(&r.slack, "slack", 10*time.Second, "tests that take five times as long as without a change, and so much more, notice it")
	flag.IntVar(&r.sample, "sample", 0, "try so many of the changes, drawn with -seed; 0 for all")
	flag.Uint64Var(&r.seed, "seed", 1, "the seed of -sample")
	flag.IntVar(&r.jobs, "jobs", 2, "changes that are tried at a time")
	goal := flag.Int("goal", 95, "fail below this score, in percent")
	flag.Parse()
	r.tests = []string{r.dir}
	if *tests != "" {
		r.tests = strings.Split(*tests, ",")
	}
	score, err := r.run(context.Background())
	if err == nil && score < *goal {
		err = fmt.Errorf("%s: %d %% of the changes are noticed, the goal is %d %%", r.dir, score, *goal)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type run struct {
	module, dir, file, equivalent string
	tests                         []string
	timeout, slack                time.Duration
	jobs, sample                  int
	seed                          uint64
	out                           io.Writer
}

// run returns how many of the changes that compile are noticed, in percent.
func (r run) run(ctx context.Context) (score int, err error) {
	known, err := readEquivalent(r.equivalent)
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	changes, overlay, err := r.changes(ctx, work)
	if err != nil {
		return 0, err
	}
	var dirs []string
	for _, dir := range r.tests {
		dirs = append(dirs, filepath.Join(r.module, dir))
	}
	j, err := newJudge(ctx, work, overlay, dirs, r.timeout)
	if err != nil {
		return 0, err
	}

	var numbers []int
	for i, m := range changes {
		if _, equivalent := known[m.name()]; !equivalent {
			numbers = append(numbers, i+1)
		}
		delete(known, m.name())
	}
	if err := r.unused(known); err != nil {
		return 0, err
	}
	same, all := len(changes)-len(numbers), len(numbers)
	if all == 0 {
		return 0, fmt.Errorf("no change of %s compiles", r.dir)
	}
	numbers = r.draw(numbers)
	killed := 0
	for i, noticed := range r.try(ctx, j, numbers) {
		if noticed {
			killed++
			continue
		}
		m := changes[numbers[i]-1]
		fmt.Fprintf(r.out, "line %d, tests that come by: %d: %s\n", m.line, len(j[numbers[i]]), m.name())
	}
	score = 100 * killed / len(numbers)
	fmt.Fprintf(r.out, "%s: killed %d of %d (%d %%), %d equivalent", r.place(""), killed, len(numbers), score, same)
	if len(numbers) < all {
		fmt.Fprintf(r.out, ", a sample of %d with seed %d", all, r.seed)
	}
	fmt.Fprintln(r.out)
	return score, nil
}

// unused returns an error for lines about the package that are no change of it: one of them could excuse another change later.
func (r run) unused(known map[string]string) error {
	var lines []string
	for line := range known {
		file, _, _ := strings.Cut(line, " ")
		if path.Dir(file) == r.place("") && (r.file == "" || path.Base(file) == r.file) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return fmt.Errorf("%s has lines that are no change of the source, remove them:\n%s", r.equivalent, strings.Join(lines, "\n"))
}

// draw returns the sample of the numbers, in their order.
func (r run) draw(numbers []int) []int {
	if r.sample <= 0 || r.sample >= len(numbers) {
		return numbers
	}
	drawn := make([]int, r.sample)
	for i, at := range rand.New(rand.NewPCG(r.seed, 0)).Perm(len(numbers))[:r.sample] {
		drawn[i] = numbers[at]
	}
	slices.Sort(drawn)
	return drawn
}

// try reports for each change whether a test notices it.
func (r run) try(ctx context.Context, j judge, numbers []int) []bool {
	noticed := make([]bool, len(numbers))
	next := make(chan int)
	var workers sync.WaitGroup
	for range r.jobs {
		workers.Go(func() {
			for i := range next {
				noticed[i] = j.notices(ctx, numbers[i], r.slack)
			}
		})
	}
	for i := range numbers {
		next <- i
	}
	close(next)
	workers.Wait()
	return noticed
}

// place returns the path of a file of the package, below the modules.
func (r run) place(name string) string {
	return filepath.ToSlash(filepath.Join(filepath.Base(r.module), r.dir, name))
}

// changes returns the changes of the package that compile, and an overlay in which the
// package has all of them. The first has number 1.
func (r run) changes(ctx context.Context, work string) (all []mutant, overlay string, err error) {
	pkg, err := load(ctx, filepath.Join(r.module, r.dir))
	if err != nil {
		return nil, "", err
	}
	replace := make(map[string]string)
	write := func(name string, data []byte) error {
		path := filepath.Join(work, name)
		replace[filepath.Join(pkg.dir, name)] = path
		return os.WriteFile(path, data, 0o600)
	}
	var names []string
	for name := range pkg.files {
		if r.file == "" || name == r.file {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		content := pkg.files[name]
		found, err := mutants(r.place(name), content)
		if err != nil {
			return nil, "", err
		}
		found = slices.DeleteFunc(found, func(m mutant) bool { return !pkg.compiles(name, m.apply(content)) })
		if err := write(name, instrument(content, found, len(all)+1)); err != nil {
			return nil, "", err
		}
		all = append(all, found...)
	}
	if err := write("mutants_overlay.go", support(pkg.name, len(all)+1)); err != nil {
		return nil, "", err
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	overlay = filepath.Join(work, "overlay.json")
	return all, overlay, os.WriteFile(overlay, data, 0o600)
}

// readEquivalent returns the changes in a file that change no behaviour. A line is a
// change's name, and the line before it begins with "#" and has the reason.
func readEquivalent(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := make(map[string]string)
	reason := ""
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case line == "":
			reason = ""
		case strings.HasPrefix(line, "#"):
			reason = strings.TrimSpace(line[1:])
		case reason == "":
			return nil, fmt.Errorf("%s: line %d has no reason above it", path, i+1)
		default:
			known[line] = reason
		}
	}
	return known, nil
}
