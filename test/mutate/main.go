// SPDX-License-Identifier: Apache-2.0

// Command mutate changes a package's source, a change at a time, and runs tests: a
// change that no test notices is a fault that no test would find. It prints these
// changes and a score, and fails below a goal.
//
// The known tools for Go change no conditions of a switch and leave out no statements,
// and they copy a module, which breaks its relative paths to other modules. This one
// hands the changed file to the go command as an overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	r := run{out: os.Stdout}
	flag.StringVar(&r.module, "module", "", "directory of the module")
	flag.StringVar(&r.dir, "package", "", "directory of the package to change, below the module")
	tests := flag.String("tests", "", "packages whose tests run, separated by commas; empty for the package's own")
	flag.StringVar(&r.file, "file", "", "change this file of the package only")
	flag.StringVar(&r.equivalent, "equivalent", "mutate/equivalent.txt", "file with the changes that change no behaviour, and why")
	flag.DurationVar(&r.timeout, "timeout", 5*time.Minute, "a test that takes longer has noticed the change")
	goal := flag.Int("goal", 95, "fail below this score, in percent")
	flag.Parse()
	r.tests = []string{"./" + r.dir}
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
	timeout                       time.Duration
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
	recorded := r.recorded()
	if out, err := r.test(ctx, ""); err != nil {
		return 0, fmt.Errorf("the tests fail without a change: %w\n%s", err, out)
	}
	sources, err := filepath.Glob(filepath.Join(r.module, r.dir, "*.go"))
	if err != nil {
		return 0, err
	}
	noticed, missed, same := 0, 0, 0
	for _, path := range sources {
		name := filepath.Base(path)
		if strings.HasSuffix(name, "_test.go") || r.file != "" && name != r.file {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		all, err := mutants(source)
		if err != nil {
			return 0, err
		}
		for _, m := range all {
			place := filepath.ToSlash(filepath.Join(filepath.Base(r.module), r.dir, name))
			if _, equivalent := known[place+": "+m.String()]; equivalent {
				same++
				continue
			}
			overlay, err := write(work, path, m.apply(source))
			if err != nil {
				return 0, err
			}
			if r.build(ctx, overlay) != nil {
				continue // it does not compile
			}
			_, failure := r.test(ctx, overlay)
			if err := r.forget(recorded); err != nil {
				return 0, err
			}
			if failure != nil {
				noticed++
				continue
			}
			missed++
			fmt.Fprintf(r.out, "%s:%d: %s\n", place, m.line, m)
		}
	}
	if noticed+missed == 0 {
		return 0, fmt.Errorf("no change of %s compiles", r.dir)
	}
	score = 100 * noticed / (noticed + missed)
	fmt.Fprintf(r.out, "%s/%s: %d changes noticed, %d not, %d without an effect: %d %%\n",
		filepath.Base(r.module), r.dir, noticed, missed, same, score)
	return score, nil
}

// write writes a changed source and the overlay that puts it in the place of path.
func write(work, path string, changed []byte) (overlay string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return "", err
	}
	source := filepath.Join(work, "source.go")
	if err := os.WriteFile(source, changed, 0o600); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: source}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(work, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}

func (r run) build(ctx context.Context, overlay string) error {
	_, err := r.command(ctx, "build", "-overlay", overlay, "./"+r.dir)
	return err
}

func (r run) test(ctx context.Context, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	args := []string{"test", "-vet=off", "-failfast", "-timeout", r.timeout.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	return r.command(ctx, append(args, r.tests...)...)
}

// recorded returns the failures that rapid has recorded beside the tests.
func (r run) recorded() map[string]bool {
	files := make(map[string]bool)
	for _, dir := range r.tests {
		found, _ := filepath.Glob(filepath.Join(r.module, dir, "testdata", "rapid", "*", "*"))
		for _, file := range found {
			files[file] = true
		}
	}
	return files
}

// forget removes the failures that were recorded since before. Rapid tries recorded
// failures first: the next change would be noticed by the failure of an earlier one.
func (r run) forget(before map[string]bool) error {
	var errs []error
	for file := range r.recorded() {
		if !before[file] {
			errs = append(errs, os.Remove(file))
		}
	}
	return errors.Join(errs...)
}

func (r run) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.module
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// readEquivalent returns the changes in a file that change no behaviour. A line is
// "path: change", and the line before it begins with "#" and has the reason.
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
