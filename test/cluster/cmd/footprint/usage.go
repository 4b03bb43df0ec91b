// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

// settled is how long the daemons rest before a row is measured: a minute after its start a daemon gives back pages of its program, and
// Go gives memory back to the kernel slowly.
const settled = 75 * time.Second

// usage is what a process has taken.
type usage struct {
	resident, own int // MiB; own is anonymous memory (RssAnon)
	cpu           time.Duration
	// wakes is how often threads of the process have waited: after each wait the kernel wakes the thread up.
	wakes int
}

// row is what both daemons take beside the claims of a level.
type row struct {
	level
	rest time.Duration
	// of is by program. CPU time and wake-ups are of the rest.
	of map[string]usage
}

// measure lets the daemons rest and returns what they take.
func (n *node) measure(ctx context.Context, l level, rest time.Duration) (row, error) {
	r := row{level: l, of: map[string]usage{}}
	if err := pause(ctx, settled); err != nil {
		return row{}, err
	}
	before, err := n.usages()
	if err != nil {
		return row{}, err
	}
	began := time.Now()
	if err := pause(ctx, rest); err != nil {
		return row{}, err
	}
	after, err := n.usages()
	r.rest = time.Since(began)
	for program, now := range after {
		now.cpu -= before[program].cpu
		now.wakes -= before[program].wakes
		r.of[program] = now
	}
	return r, err
}

// pause waits so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (n *node) usages() (map[string]usage, error) {
	all := map[string]usage{}
	for program, cmd := range n.programs {
		u, err := usageOf(cmd.Process.Pid)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", program, err)
		}
		all[program] = u
	}
	return all, nil
}

// usageOf reads /proc/PID/status and stat, and the status of each thread (proc(5)).
func usageOf(pid int) (u usage, err error) {
	if u.cpu, err = hollow.CPUTime(pid); err != nil {
		return usage{}, err
	}
	numbers, err := readStatus(fmt.Sprintf("/proc/%d/status", pid), "VmRSS", "RssAnon")
	if err != nil {
		return usage{}, err
	}
	u.resident, u.own = numbers[0]>>10, numbers[1]>>10
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return usage{}, err
	}
	for _, thread := range threads {
		numbers, err := readStatus(fmt.Sprintf("/proc/%d/task/%s/status", pid, thread.Name()), "voluntary_ctxt_switches")
		if err != nil {
			return usage{}, err
		}
		u.wakes += numbers[0]
	}
	return u, nil
}

// readStatus returns the numbers of the named lines of a status file.
func readStatus(path string, names ...string) ([]int, error) {
	status, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers := make([]int, len(names))
	for i, name := range names {
		line := regexp.MustCompile(`(?m)^` + name + `:\s*(\d+)`).FindSubmatch(status)
		if line == nil {
			return nil, fmt.Errorf("%s has no number %s: the process has ended", path, name)
		}
		if numbers[i], err = strconv.Atoi(string(line[1])); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, name, err)
		}
	}
	return numbers, nil
}

// String returns the row as a line of Markdown.
func (r row) String() string {
	line := fmt.Sprintf("| %d | %d |", r.ofTemplates, r.named)
	for _, program := range []string{frontend, actuator} {
		u := r.of[program]
		line += fmt.Sprintf(" %d MiB | %d MiB | %.1f %% | %.0f |",
			u.resident, u.own, 100*float64(u.cpu)/float64(r.rest), float64(u.wakes)/r.rest.Seconds())
	}
	return line + "\n"
}

// table returns the rows as Markdown.
func table(rows []row) string {
	text := "| claims from templates | named claims | `dra-frontend` | of it not the program's file | CPU | wake-ups each second " +
		"| `nri-actuator` | of it not the program's file | CPU | wake-ups each second |\n" +
		"|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
	for _, r := range rows {
		text += r.String()
	}
	return text
}
