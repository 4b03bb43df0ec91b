// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/utils/cpuset"
)

// action is what the program can do. Its line is what do returns; nil stands for its
// name and arguments.
type action struct {
	name string
	// arguments names the arguments, for errors.
	arguments string
	// read takes the arguments. The program does the action after all of its
	// arguments were read.
	read func(*arguments) do
	// quiet reports whether the action prints its lines itself, or none.
	quiet bool
}

type do func() (line any, err error)

func actions() []action {
	return []action{
		{name: "mask", read: func(*arguments) do {
			return func() (any, error) { return readMask("/proc/self/status") }
		}},
		{name: "view", read: func(*arguments) do {
			return func() (any, error) { return readView("/proc/self/status", "/sys/fs/cgroup") }
		}},
		{name: "touch", arguments: "SIZE", read: func(a *arguments) do {
			size := a.size()
			return func() (any, error) { return touch(size) }
		}},
		{name: "cache", arguments: "FILE SIZE", read: func(a *arguments) do {
			file, size := a.text(), a.size()
			return func() (any, error) {
				return map[string]any{"action": "cache", "file": file, "bytes": size}, fillCache(file, size)
			}
		}},
		{name: "bind", arguments: "NODE", read: func(a *arguments) do {
			node := a.number()
			return func() (any, error) { return nil, bind(node) }
		}},
		{name: "read", arguments: "FILE SIZE N", read: func(a *arguments) do {
			file, size, times := a.text(), a.size(), a.size()
			return func() (any, error) { return nil, readFile(file, size, times) }
		}},
		{name: "fill", arguments: "SIZE", read: func(a *arguments) do {
			size := a.size()
			return func() (any, error) { return nil, grow(size, size, 0, true) }
		}},
		{name: "grow", arguments: "SIZE STEP T", read: func(a *arguments) do {
			size, step, pause := a.size(), a.size(), a.duration()
			return func() (any, error) { return nil, grow(size, step, pause, false) }
		}},
		{name: "hugepages", arguments: "SIZE N", read: func(a *arguments) do {
			size, count := a.size(), a.number()
			return func() (any, error) { return hugepages(size, count) }
		}},
		{name: "hugefile", arguments: "DIR N", read: func(a *arguments) do {
			dir, count := a.text(), a.size()
			return func() (any, error) { return hugefile(dir, count) }
		}},
		{name: "flood", arguments: "ADDRESS N SIZE", read: func(a *arguments) do {
			address, count, size := a.text(), a.size(), a.size()
			return func() (any, error) { return flood(context.Background(), address, count, size) }
		}},
		{name: "hog", read: func(*arguments) do {
			return func() (any, error) { return hog(), nil }
		}},
		{name: "cycle", arguments: "T DURATION", read: func(a *arguments) do {
			interval, duration := a.duration(), a.duration()
			return func() (any, error) { return cycle(interval, duration) }
		}},
		{name: "observe", arguments: "CPUS T", quiet: true, read: func(a *arguments) do {
			watched, interval := a.cpus(), a.duration()
			return func() (any, error) {
				if interval <= 0 {
					return nil, fmt.Errorf("observe: interval %s: want a time above 0, like 10ms", interval)
				}
				return nil, observe(os.Stdout, watched, interval, ended())
			}
		}},
		{name: "sleep", quiet: true, read: func(a *arguments) do {
			var wait <-chan time.Time
			if duration, given := a.optionalDuration(); given {
				wait = time.After(duration)
			}
			return func() (any, error) {
				select {
				case <-wait:
				case <-ended():
					os.Exit(0)
				}
				return nil, nil
			}
		}},
		{name: "exit", arguments: "CODE", quiet: true, read: func(a *arguments) do {
			code := a.number()
			return func() (any, error) { os.Exit(code); return nil, nil }
		}},
	}
}

// arguments are the arguments of an action, read from left to right. After an
// error the values are zero.
type arguments struct {
	action string
	names  []string
	left   []string
	err    error
}

// text returns the next argument.
func (a *arguments) text() string {
	if len(a.left) == 0 && a.err == nil {
		a.err = fmt.Errorf("%s wants the arguments %q, %s is missing", a.action, a.names, a.names[0])
	}
	if a.err != nil {
		return ""
	}
	next := a.left[0]
	a.names, a.left = a.names[1:], a.left[1:]
	return next
}

// parse reads the next argument with a function.
func parse[T any](a *arguments, read func(string) (T, error)) (value T) {
	text := a.text()
	if a.err != nil {
		return value
	}
	value, err := read(text)
	if err != nil {
		a.err = fmt.Errorf("%s: %q: %w", a.action, text, err)
	}
	return value
}

func (a *arguments) size() int { return parse(a, parseSize) }

func (a *arguments) number() int { return parse(a, strconv.Atoi) }

func (a *arguments) duration() time.Duration { return parse(a, time.ParseDuration) }

func (a *arguments) cpus() cpuset.CPUSet { return parse(a, cpuset.Parse) }

// optionalDuration returns the next argument if it is a duration.
func (a *arguments) optionalDuration() (value time.Duration, given bool) {
	if len(a.left) == 0 {
		return 0, false
	}
	value, err := time.ParseDuration(a.left[0])
	if err != nil {
		return 0, false
	}
	a.left = a.left[1:]
	return value, true
}
