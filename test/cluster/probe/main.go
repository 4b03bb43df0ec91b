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
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
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
	i := slices.IndexFunc(actions(), func(a action) bool { return a.name == args[0] })
	if i < 0 {
		var names []string
		for _, a := range actions() {
			names = append(names, a.name)
		}
		return nil, nil, fmt.Errorf("no action %q: %s", args[0], strings.Join(names, ", "))
	}
	a := actions()[i]
	given := &arguments{action: a.name, names: strings.Fields(a.arguments), left: args[1:]}
	do := a.read(given)
	if given.err != nil {
		return nil, nil, given.err
	}
	line, err = do()
	if line == nil && !a.quiet && err == nil {
		used := len(args) - len(given.left)
		line = map[string]any{"action": a.name, "arguments": args[1:used]}
	}
	return line, given.left, err
}

// ended returns the channel of the signals that ask this process to end.
func ended() <-chan os.Signal {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	return stop
}
