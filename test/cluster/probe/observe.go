// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/cpuset"
)

// heartbeat is the longest time between two lines of an observer, so that output without an end shows how far it reaches.
const heartbeat = time.Second

// observed is a line of an observer: for each change of its CPUs, each heartbeat, and its end. A line holds from its
// time until the time of the next line.
type observed struct {
	Action    string    `json:"action"`
	Time      time.Time `json:"time"`
	Monotonic int64     `json:"monotonic"`           // ns, the same clock for all processes of the node
	CPUs      string    `json:"cpus"`                // this process may run on
	Effective string    `json:"effective,omitempty"` // its cgroup's cpuset.cpus.effective, if it has the file
	Watched   string    `json:"watched"`             // the watched CPUs that it may run on
	Before    int64     `json:"before"`              // ns, when the sample before this one was taken
	Samples   int       `json:"samples"`             // so far
	Allowed   int       `json:"allowed"`             // samples so far in which it could run on a watched CPU
	Gap       int64     `json:"gap"`                 // ns, the longest time between two samples so far
	Ended     bool      `json:"ended,omitempty"`
}

// observer is the state of an observer after the samples so far.
type observer struct {
	watched cpuset.CPUSet
	last    observed
	said    time.Time
}

// sample adds a sample and reports whether o.last is to be printed.
func (o *observer) sample(at time.Time, monotonic int64, cpus, effective string) (say bool, err error) {
	set, err := cpuset.Parse(cpus)
	if err != nil {
		return false, fmt.Errorf("observe: CPUs %q: %w", cpus, err)
	}
	hit := set.Intersection(o.watched)
	next := observed{
		Action: "observe", Time: at, Monotonic: monotonic, CPUs: cpus, Effective: effective, Watched: hit.String(),
		Samples: o.last.Samples + 1, Allowed: o.last.Allowed, Gap: o.last.Gap,
	}
	if !hit.IsEmpty() {
		next.Allowed++
	}
	next.Before = o.last.Monotonic
	if o.last.Samples > 0 {
		next.Gap = max(next.Gap, monotonic-o.last.Monotonic)
	}
	say = o.last.Samples == 0 || o.last.CPUs != cpus || o.last.Effective != effective || at.Sub(o.said) >= heartbeat
	if say {
		o.said = at
	}
	o.last = next
	return say, nil
}

// observe takes a sample every interval until stop, and writes lines to out.
func observe(out io.Writer, watched cpuset.CPUSet, interval time.Duration, stop <-chan os.Signal) error {
	own, err := ownCgroup()
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	o := observer{watched: watched}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		fields, err := statusFields("/proc/self/status")
		if err != nil {
			return err
		}
		effective, err := os.ReadFile(filepath.Join(own, "cpuset.cpus.effective"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		say, err := o.sample(time.Now(), monotonic(), fields["Cpus_allowed_list"], strings.TrimSpace(string(effective)))
		if err != nil {
			return err
		}
		if say {
			if err := lines.Encode(o.last); err != nil {
				return err
			}
		}
		select {
		case <-stop:
			o.last.Ended = true
			return lines.Encode(o.last)
		case <-tick.C:
		}
	}
}

// ownCgroup returns the directory of this process's cgroup, as this process sees it.
func ownCgroup() (string, error) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return filepath.Join("/sys/fs/cgroup", dir), nil
		}
	}
	return "", fmt.Errorf("/proc/self/cgroup: no line of cgroup v2 in %q", data)
}
