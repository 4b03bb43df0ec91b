// SPDX-License-Identifier: Apache-2.0

// Package quiet checks what claims ask of the machine for their CPUs: interrupts, wake-up
// latency and frequency. [Check] is a function from values to values, and package decision
// calls it when the CPUs are chosen. [Read] reads what the machine has from sysfs, for
// package kubelet, and only when a claim asks.
package quiet

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Facts are what the machine has.
type Facts struct {
	// Interrupts are the names of the handlers of each interrupt that has some.
	Interrupts [][]string
	// CPUs are the frequencies of the CPUs by id. A CPU without frequency scaling is absent.
	CPUs map[int]CPU
	// Unknown reports that nothing is known about the machine, because it exists on paper:
	// no wish is refused.
	Unknown bool
	// Err is why the facts are not known, nil if they are.
	Err error
}

// CPU is what a CPU's frequency can be.
type CPU struct {
	Governors []string
	// Min and Max are in kHz.
	Min, Max int64
	// Core are the CPUs of the same core, Clock the online CPUs that have one set of files for the frequency
	// (affected_cpus of cpufreq).
	Core, Clock contract.CPUSet
}

// NeedsFacts reports whether the check of a wish needs the machine's facts.
func NeedsFacts(w contract.Quiet) bool { return w.Device != "" || hasFrequency(w) }

func hasFrequency(w contract.Quiet) bool {
	return w.Files[contract.FileGovernor] != "" || w.Files[contract.FileMinFrequency] != "" || w.Files[contract.FileMaxFrequency] != ""
}

// Check refuses a wish for cpus that the machine cannot fulfil, or that contradicts another
// wish. others are the other prepared claims, own are the results of the same claim that are
// decided already. The error has the field, the value and the choices.
func Check(w contract.Quiet, cpus contract.CPUSet, others []contract.ClaimRecord, own []contract.ResultRecord, f Facts) error {
	if !NeedsFacts(w) || f.Unknown {
		return nil
	}
	if f.Err != nil {
		return fmt.Errorf("the interrupts and frequencies of this machine cannot be read: %w", f.Err)
	}
	others = append(slices.Clone(others), contract.ClaimRecord{Results: own})
	if w.Device != "" {
		if err := checkDevice(w.Device, others, f); err != nil {
			return err
		}
	}
	if hasFrequency(w) {
		if err := checkFrequency(w, cpus, others, f); err != nil {
			return err
		}
		return checkClock(cpus, own, f)
	}
	return nil
}

// checkClock refuses a frequency if a CPU has one clock with CPUs that the claim does not have: the kernel would change the
// frequency of these CPUs as well.
func checkClock(cpus contract.CPUSet, own []contract.ResultRecord, f Facts) error {
	claimed := cpus
	for _, r := range own {
		claimed = claimed.Union(r.Decision.CPUs)
	}
	for _, id := range cpus.List() {
		if foreign := f.CPUs[id].Clock.Difference(claimed); !foreign.IsEmpty() {
			return fmt.Errorf("cpu.governor, cpu.minFrequency and cpu.maxFrequency: "+
				"CPU %d has one clock with CPUs %s, which the claim does not have: "+
				"ask for all CPUs of the clock (cpu.wholeCores if they are of one core), or leave the fields out", id, foreign)
		}
	}
	return nil
}

// maxNames bounds a message that becomes the event of a pod.
const maxNames = 8

func checkDevice(pattern string, others []contract.ClaimRecord, f Facts) error {
	device := contract.DeviceInterrupts{Pattern: pattern}
	var matched [][]string
	for _, names := range f.Interrupts {
		if device.Match(names) {
			matched = append(matched, names)
		}
	}
	if len(matched) == 0 {
		return fmt.Errorf("cpu.interrupts: no interrupt of this machine has a name that matches device %q; there are %s",
			pattern, few(f.Interrupts))
	}
	for _, other := range others {
		for _, r := range other.Results {
			if r.Quiet.Device == "" {
				continue
			}
			taken := contract.DeviceInterrupts{Pattern: r.Quiet.Device}
			for _, names := range matched {
				if taken.Match(names) {
					return fmt.Errorf("cpu.interrupts: device %q matches interrupt %s, "+
						"which another claim on this node, or another request of this claim, has (device %q): "+
						"choose another pattern, or delete the pod of the other claim",
						pattern, contract.Excerpt(strings.Join(names, " "), 60), r.Quiet.Device)
				}
			}
			// A device has no interrupts while it is down.
			if covers(pattern, r.Quiet.Device) {
				return fmt.Errorf("cpu.interrupts: device %q matches all names of device %q, which another claim on this node, "+
					"or another request of this claim, has: choose another pattern, or delete the pod of the other claim", pattern, r.Quiet.Device)
			}
		}
	}
	return nil
}

// covers reports whether a pattern matches what another one stands for: the other one's letters, with any letters in
// place of its * and ?.
func covers(pattern, other string) bool {
	const any = "\x00"
	name := strings.NewReplacer("*", any+any+any, "?", any).Replace(other)
	return contract.DeviceInterrupts{Pattern: pattern}.Match([]string{name})
}

// few returns some of the names, each once, for people.
func few(interrupts [][]string) string {
	var names []string
	for _, n := range interrupts {
		names = append(names, n...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	text := contract.Excerpt(strings.Join(names[:min(len(names), maxNames)], ", "), 300)
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more (/sys/kernel/irq/*/actions on the node has all)", more)
	}
	if text == "" {
		return "none"
	}
	return text
}

func checkFrequency(w contract.Quiet, cpus contract.CPUSet, others []contract.ClaimRecord, f Facts) error {
	var beside contract.CPUSet
	for _, id := range cpus.List() {
		cpu, scales := f.CPUs[id]
		if !scales {
			return fmt.Errorf("cpu.governor, cpu.minFrequency and cpu.maxFrequency: CPU %d has no frequency scaling on this machine "+
				"(no cpufreq in sysfs): leave them out, or use a node that has it", id)
		}
		if g := w.Files[contract.FileGovernor]; g != "" && !slices.Contains(cpu.Governors, g) {
			return fmt.Errorf("cpu.governor: %q, want one of %q, which CPU %d has", g, cpu.Governors, id)
		}
		for field, file := range frequencies() {
			kHz, err := strconv.ParseInt(w.Files[file], 10, 64)
			if err == nil && (kHz < cpu.Min || kHz > cpu.Max) {
				return fmt.Errorf("%s: %s, want %s to %s, which CPU %d has", field, mhz(kHz), mhz(cpu.Min), mhz(cpu.Max), id)
			}
		}
		beside = beside.Union(cpu.Core).Union(cpu.Clock)
	}
	for _, other := range others {
		for _, r := range other.Results {
			if shared := r.Decision.CPUs.Intersection(beside); !shared.IsEmpty() {
				if err := contradicts(w.Files, r.Quiet.Files); err != nil {
					return fmt.Errorf("%w, which another claim or request has for CPUs %s: they share a core or a clock with CPUs %s; "+
						"use cpu.wholeCores, or the same values", err, shared, cpus)
				}
			}
		}
	}
	return nil
}

// frequencies returns the parameters with a frequency and their files.
func frequencies() map[string]string {
	return map[string]string{"cpu.minFrequency": contract.FileMinFrequency, "cpu.maxFrequency": contract.FileMaxFrequency}
}

// contradicts returns an error if CPUs that share a core or a clock cannot have both. CPUs of
// one cpufreq policy have their files in common, and threads of a core have one clock, so
// two contents of one file contradict.
func contradicts(one, other map[string]string) error {
	if a, b := one[contract.FileGovernor], other[contract.FileGovernor]; a != "" && b != "" && a != b {
		return fmt.Errorf("cpu.governor: %q contradicts %q", a, b)
	}
	fields := frequencies()
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		file := fields[field]
		a, aErr := strconv.ParseInt(one[file], 10, 64)
		b, bErr := strconv.ParseInt(other[file], 10, 64)
		if aErr == nil && bErr == nil && a != b {
			return fmt.Errorf("%s %s contradicts %s", field, mhz(a), mhz(b))
		}
	}
	for _, pair := range []struct{ min, max map[string]string }{{one, other}, {other, one}} {
		low, lowErr := strconv.ParseInt(pair.min[contract.FileMinFrequency], 10, 64)
		high, highErr := strconv.ParseInt(pair.max[contract.FileMaxFrequency], 10, 64)
		if lowErr == nil && highErr == nil && low > high {
			return fmt.Errorf("cpu.minFrequency %s contradicts cpu.maxFrequency %s", mhz(low), mhz(high))
		}
	}
	return nil
}

func mhz(kHz int64) string { return strconv.FormatFloat(float64(kHz)/1e3, 'f', -1, 64) + "MHz" }

// Machine returns the machine's part of a node state: what the prepared claims ask for.
// online are the online CPUs of the machine.
func Machine(online contract.CPUSet, claims []contract.ClaimRecord) contract.Machine {
	var m contract.Machine
	var noInterrupts, noWorkQueues contract.CPUSet
	files := make(map[int]map[string]string)
	for _, c := range claims {
		for _, r := range c.Results {
			q, cpus := r.Quiet, r.Decision.CPUs
			if q.NoInterrupts {
				noInterrupts = noInterrupts.Union(cpus)
			}
			if q.NoWorkQueues {
				noWorkQueues = noWorkQueues.Union(cpus)
			}
			if q.Device != "" {
				m.DeviceInterrupts = append(m.DeviceInterrupts, contract.DeviceInterrupts{Pattern: q.Device, CPUs: cpus})
			}
			for _, id := range cpus.List() {
				if len(q.Files) > 0 {
					files[id] = q.Files
				}
			}
		}
	}
	if !noInterrupts.IsEmpty() {
		m.InterruptCPUs = online.Difference(noInterrupts)
	}
	if !noWorkQueues.IsEmpty() {
		m.WorkQueueCPUs = online.Difference(noWorkQueues)
	}
	m.CPUs = grouped(files)
	return m
}

// grouped returns the files of CPUs with one entry for all CPUs that have the same, in the
// order of the lowest CPU (I8).
func grouped(files map[int]map[string]string) []contract.CPUFiles {
	var groups []contract.CPUFiles
	for _, id := range slices.Sorted(maps.Keys(files)) {
		i := slices.IndexFunc(groups, func(g contract.CPUFiles) bool { return maps.Equal(g.Files, files[id]) })
		if i < 0 {
			groups = append(groups, contract.CPUFiles{CPUs: contract.CPUs(id), Files: files[id]})
			continue
		}
		groups[i].CPUs = groups[i].CPUs.Union(contract.CPUs(id))
	}
	return groups
}
