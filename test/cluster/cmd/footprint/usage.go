// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
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
}

// row is what both daemons take beside the claims of a level.
type row struct {
	level
	rest time.Duration
	// of is by program; its cpu is that of rest.
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

// usageOf reads /proc/PID/status and stat (proc(5)).
func usageOf(pid int) (u usage, err error) {
	if u.cpu, err = hollow.CPUTime(pid); err != nil {
		return usage{}, err
	}
	status, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	defer status.Close()
	found := 0
	for lines := bufio.NewScanner(status); lines.Scan(); {
		for name, field := range map[string]*int{"VmRSS:": &u.resident, "RssAnon:": &u.own} {
			rest, is := strings.CutPrefix(lines.Text(), name)
			if !is {
				continue
			}
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				return usage{}, fmt.Errorf("/proc/%d/status: %w", pid, err)
			}
			found++
			*field = kib >> 10
		}
	}
	if found != 2 {
		return usage{}, fmt.Errorf("/proc/%d/status has %d of 2 sizes: the process has ended", pid, found)
	}
	return u, nil
}

// String returns the row as a line of Markdown.
func (r row) String() string {
	line := fmt.Sprintf("| %d | %d |", r.ofTemplates, r.named)
	for _, program := range []string{frontend, actuator} {
		u := r.of[program]
		line += fmt.Sprintf(" %d MiB | %d MiB | %.1f %% |", u.resident, u.own, 100*float64(u.cpu)/float64(r.rest))
	}
	return line + "\n"
}

// table returns the rows as Markdown.
func table(rows []row) string {
	text := "| claims from templates | named claims | `dra-frontend` | of it not the program's file | CPU " +
		"| `nri-actuator` | of it not the program's file | CPU |\n" +
		"|--:|--:|--:|--:|--:|--:|--:|--:|\n"
	for _, r := range rows {
		text += r.String()
	}
	return text
}
