// SPDX-License-Identifier: Apache-2.0

// Command probe is the program that test containers run. It prints, as JSON lines, what the kernel gives it: CPUs, NUMA
// nodes, its own cgroup's files, the NUMA nodes of its pages, the number of hugepages. Its arguments are actions, done
// in order; each prints one line with the field "action".
//
//	mask               CPUs this process may run on
//	view               CPUs, NUMA nodes and the cgroup's values
//	touch SIZE         map SIZE of anonymous memory, write to every page, count pages per NUMA node
//	cache FILE SIZE    write and read a file of SIZE: page cache, which the kernel can reclaim
//	bind NODE          take all later memory from this NUMA node (needs CAP_SYS_NICE)
//	read FILE SIZE N   make a sparse file of SIZE and read it N times: page cache that costs no disk
//	fill SIZE          map SIZE of anonymous memory and write to it, in huge pages where the kernel gives them
//	grow SIZE STEP T   map SIZE of anonymous memory and write to STEP more of it every T
//	hugepages SIZE N   map and write N hugepages of SIZE one by one, report how many there were
//	hugefile DIR N     make a file of N pages in the hugetlbfs DIR, map it and write it page by page, report how many there were
//	flood ADDRESS N SIZE
//	                   open N connections to an HTTP server, send a header of SIZE without an end on each, wait until
//	                   the server has closed all of them (a minute at most), report how many there were
//	hog                keep every CPU this process may use busy, also during the actions that follow
//	cycle T DURATION   wake up every T and count how late: quantiles and a histogram
//	observe CPUS T     look every T which CPUs this process may run on, and which of CPUS are among them; print a line for
//	                   each change and each second (until SIGTERM)
//	sleep [DURATION]   wait, without a duration for ever (until SIGTERM)
//	exit CODE
//
// Mapped memory stays mapped. Sizes are bytes or end in Ki, Mi, Gi. Without arguments: mask view sleep.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"k8s.io/utils/cpuset"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"mask", "view", "sleep"}
	}
	out := json.NewEncoder(os.Stdout)
	for len(args) > 0 {
		line, rest, err := act(args)
		if err != nil {
			line = map[string]any{"action": args[0], "error": err.Error()}
		}
		if line != nil {
			if err := out.Encode(line); err != nil {
				os.Exit(1)
			}
		}
		if err != nil {
			os.Exit(1)
		}
		args = rest
	}
}

// act does the first action and returns its line (nil: none) and the arguments after it.
func act(args []string) (line any, rest []string, err error) {
	need := func(n int) error {
		if len(args) <= n {
			return fmt.Errorf("%s wants %d arguments, got %d", args[0], n, len(args)-1)
		}
		return nil
	}
	numbers := func(sizes ...int) (out []int, err error) {
		for _, i := range sizes {
			if err := need(i); err != nil {
				return nil, err
			}
			n, err := parseSize(args[i])
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
		return out, nil
	}
	done := func(n int) map[string]any { return map[string]any{"action": args[0], "arguments": args[1 : 1+n]} }
	switch args[0] {
	case "mask":
		line, err := readMask("/proc/self/status")
		return line, args[1:], err
	case "view":
		line, err := readView("/proc/self/status", "/sys/fs/cgroup")
		return line, args[1:], err
	case "touch":
		if err := need(1); err != nil {
			return nil, nil, err
		}
		size, err := parseSize(args[1])
		if err != nil {
			return nil, nil, err
		}
		line, err := touch(size)
		return line, args[2:], err
	case "cache":
		if err := need(2); err != nil {
			return nil, nil, err
		}
		size, err := parseSize(args[2])
		if err != nil {
			return nil, nil, err
		}
		return map[string]any{"action": "cache", "file": args[1], "bytes": size}, args[3:], fillCache(args[1], size)
	case "bind":
		if err := need(1); err != nil {
			return nil, nil, err
		}
		node, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, nil, fmt.Errorf("bind: NUMA node %q: %w", args[1], err)
		}
		return done(1), args[2:], bind(node)
	case "read":
		n, err := numbers(2, 3)
		if err != nil {
			return nil, nil, err
		}
		return done(3), args[4:], readFile(args[1], n[0], n[1])
	case "fill":
		n, err := numbers(1)
		if err != nil {
			return nil, nil, err
		}
		return done(1), args[2:], grow(n[0], n[0], 0, true)
	case "grow":
		if err := need(3); err != nil {
			return nil, nil, err
		}
		n, err := numbers(1, 2)
		if err != nil {
			return nil, nil, err
		}
		pause, err := time.ParseDuration(args[3])
		if err != nil {
			return nil, nil, fmt.Errorf("grow: %w", err)
		}
		return done(3), args[4:], grow(n[0], n[1], pause, false)
	case "hugepages":
		if err := need(2); err != nil {
			return nil, nil, err
		}
		size, err := parseSize(args[1])
		if err != nil {
			return nil, nil, err
		}
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return nil, nil, fmt.Errorf("hugepages: count %q: %w", args[2], err)
		}
		line, err := hugepages(size, count)
		return line, args[3:], err
	case "hugefile":
		n, err := numbers(2)
		if err != nil {
			return nil, nil, err
		}
		line, err := hugefile(args[1], n[0])
		return line, args[3:], err
	case "flood":
		n, err := numbers(2, 3)
		if err != nil {
			return nil, nil, err
		}
		line, err := flood(context.Background(), args[1], n[0], n[1])
		return line, args[4:], err
	case "hog":
		return hog(), args[1:], nil
	case "cycle":
		if err := need(2); err != nil {
			return nil, nil, err
		}
		interval, err := time.ParseDuration(args[1])
		if err != nil {
			return nil, nil, fmt.Errorf("cycle: %w", err)
		}
		duration, err := time.ParseDuration(args[2])
		if err != nil {
			return nil, nil, fmt.Errorf("cycle: %w", err)
		}
		line, err := cycle(interval, duration)
		return line, args[3:], err
	case "observe":
		if err := need(2); err != nil {
			return nil, nil, err
		}
		watched, err := cpuset.Parse(args[1])
		if err != nil {
			return nil, nil, fmt.Errorf("observe: %w", err)
		}
		interval, err := time.ParseDuration(args[2])
		if err != nil || interval <= 0 {
			return nil, nil, fmt.Errorf("observe: interval %q: want a time above 0, like 10ms", args[2])
		}
		return nil, args[3:], observe(os.Stdout, watched, interval, ended())
	case "sleep":
		rest := args[1:]
		var wait <-chan time.Time
		if len(rest) > 0 {
			if d, err := time.ParseDuration(rest[0]); err == nil {
				wait, rest = time.After(d), rest[1:]
			}
		}
		select {
		case <-wait:
			return nil, rest, nil
		case <-ended():
			os.Exit(0)
		}
	case "exit":
		if err := need(1); err != nil {
			return nil, nil, err
		}
		code, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, nil, fmt.Errorf("exit: code %q: %w", args[1], err)
		}
		os.Exit(code)
	}
	return nil, nil, fmt.Errorf("no action %q: mask, view, touch, cache, bind, read, fill, grow, hugepages, hugefile, "+
		"flood, hog, cycle, observe, sleep, exit", args[0])
}

// ended returns the channel of the signals that ask this process to end.
func ended() <-chan os.Signal {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	return stop
}
