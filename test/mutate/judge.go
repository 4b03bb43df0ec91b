// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// single is one test of a test binary.
type single struct {
	binary *binary
	name   string
	took   time.Duration
}

// binary has the tests of a package, built with the instrumented source.
type binary struct {
	path, dir string
	// args are for all runs.
	args []string
}

// build builds the tests of a directory, and returns their names.
func build(ctx context.Context, dir, path, overlay string) (*binary, []string, error) {
	if _, err := command(ctx, dir, "test", "-c", "-vet=off", "-overlay", overlay, "-o", path, "."); err != nil {
		return nil, nil, err
	}
	b := &binary{path: path, dir: dir}
	// Each run tries the same cases, does not make them small, and records none: rapid
	// tries recorded cases first.
	rapid := []string{"-rapid.seed=1", "-rapid.shrinktime=1ms", "-rapid.nofailfile"}
	out, err := b.run(ctx, time.Minute, nil, append([]string{"-test.list=."}, rapid...))
	if err == nil {
		b.args = rapid
	} else if out, err = b.run(ctx, time.Minute, nil, []string{"-test.list=."}); err != nil {
		return nil, nil, fmt.Errorf("list the tests of %s: %w\n%s", dir, err, out)
	}
	return b, regexp.MustCompile(`(?m)^(Test|Fuzz|Example)\w*$`).FindAllString(out, -1), nil
}

// maxMemory is for a change that makes a loop endless, in KiB of address space.
const maxMemory = 8 << 20

func (b *binary) run(ctx context.Context, timeout time.Duration, env, args []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	limited := fmt.Sprintf(`ulimit -v %d; exec "$@"`, maxMemory)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, "sh", b.path}, args...)...)
	cmd.Dir = b.dir
	cmd.Env = append(cmd.Environ(), env...)
	// A test that is cut off leaves processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tests runs some tests of the binary, until the first failure.
func (b *binary) tests(ctx context.Context, timeout time.Duration, env []string, names []string) (string, error) {
	pattern := "^(" + strings.Join(names, "|") + ")$"
	return b.run(ctx, timeout, env, append([]string{"-test.failfast", "-test.run", pattern}, b.args...))
}

// judge knows for each change the tests that come by it, the fastest first.
type judge map[int][]single

// newJudge builds the tests of directories and runs each without a change.
func newJudge(ctx context.Context, work, overlay string, dirs []string, timeout time.Duration) (judge, error) {
	j := make(judge)
	for i, dir := range dirs {
		b, names, err := build(ctx, dir, filepath.Join(work, strconv.Itoa(i)+".test"), overlay)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			reached := filepath.Join(work, "reached")
			start := time.Now()
			if out, err := b.tests(ctx, timeout, []string{reaches + "=" + reached}, []string{name}); err != nil {
				return nil, fmt.Errorf("the tests fail without a change: %s in %s: %w\n%s", name, dir, err, out)
			}
			t := single{binary: b, name: name, took: time.Since(start)}
			data, err := os.ReadFile(reached)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			numbers := strings.Fields(string(data))
			slices.Sort(numbers)
			for _, text := range slices.Compact(numbers) {
				number, err := strconv.Atoi(text)
				if err != nil {
					return nil, err
				}
				j[number] = append(j[number], t)
			}
			if err := os.RemoveAll(reached); err != nil {
				return nil, err
			}
		}
	}
	for _, tests := range j {
		slices.SortFunc(tests, func(a, b single) int { return int(a.took - b.took) })
	}
	return j, nil
}

// notices reports whether a test fails with the change. The tests run in groups that
// double in size: most changes are noticed by the first group, and a change that no test
// notices costs few starts of a program.
func (j judge) notices(ctx context.Context, number int, slack time.Duration) bool {
	env := []string{selects + "=" + strconv.Itoa(number)}
	for rest, size := j[number], 1; len(rest) > 0; size *= 2 {
		group := rest[:min(size, len(rest))]
		rest = rest[len(group):]
		names := make(map[*binary][]string)
		took := slack
		for _, t := range group {
			names[t.binary] = append(names[t.binary], t.name)
			took += 5 * t.took
		}
		for b, names := range names {
			if _, err := b.tests(ctx, took, env, names); err != nil {
				return true
			}
		}
	}
	return false
}
