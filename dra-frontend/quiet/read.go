// SPDX-License-Identifier: Apache-2.0

package quiet

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const (
	irqDir = "kernel/irq"
	cpuDir = "devices/system/cpu"
)

// Read reads the facts from sysfs.
func Read(sys fs.FS) Facts {
	interrupts, err := readInterrupts(sys)
	cpus, cpuErr := readCPUs(sys)
	return Facts{Interrupts: interrupts, CPUs: cpus, Err: errors.Join(err, cpuErr)}
}

// Irqbalance reports whether irqbalance runs as a service of systemd. cgroups is the cgroup
// mount. A node without such a service does not run it.
func Irqbalance(cgroups fs.FS) bool {
	events, err := read(cgroups, "system.slice/irqbalance.service/cgroup.events")
	return err == nil && slices.Contains(strings.Split(events, "\n"), "populated 1")
}

// readInterrupts reads the handlers of all interrupts (sysfs-kernel-irq, "actions").
func readInterrupts(sys fs.FS) ([][]string, error) {
	entries, err := fs.ReadDir(sys, irqDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("interrupts: %w", err)
	}
	var all [][]string
	for _, e := range entries {
		actions, err := read(sys, path.Join(irqDir, e.Name(), "actions"))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("interrupts: %w", err)
		}
		if actions != "" {
			all = append(all, strings.Split(actions, ","))
		}
	}
	return all, nil
}

// readCPUs reads the frequencies of the CPUs that scale (admin-guide/pm/cpufreq.rst).
func readCPUs(sys fs.FS) (map[int]CPU, error) {
	entries, err := fs.ReadDir(sys, cpuDir)
	if err != nil {
		return nil, fmt.Errorf("CPUs: %w", err)
	}
	all := make(map[int]CPU)
	for _, e := range entries {
		digits, is := strings.CutPrefix(e.Name(), "cpu")
		id, err := strconv.Atoi(digits)
		if !is || err != nil {
			continue
		}
		cpu, err := readCPU(sys, path.Join(cpuDir, e.Name()))
		// An offline CPU keeps the directory of its frequency, and the kernel refuses to read it.
		if gone(err) || errors.Is(err, syscall.EBUSY) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("frequency of CPU %d: %w", id, err)
		}
		all[id] = cpu
	}
	return all, nil
}

func readCPU(sys fs.FS, dir string) (CPU, error) {
	governors, err := read(sys, path.Join(dir, "cpufreq/scaling_available_governors"))
	if err != nil {
		return CPU{}, err
	}
	cpu := CPU{Governors: strings.Fields(governors)}
	for file, to := range map[string]*int64{"cpuinfo_min_freq": &cpu.Min, "cpuinfo_max_freq": &cpu.Max} {
		text, err := read(sys, path.Join(dir, "cpufreq", file))
		if err == nil {
			*to, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return CPU{}, err
		}
	}
	// affected_cpus has blanks between the ids.
	clock, err := read(sys, path.Join(dir, "cpufreq/affected_cpus"))
	if err != nil {
		return CPU{}, err
	}
	if cpu.Clock, err = contract.ParseCPUs(strings.Join(strings.Fields(clock), ",")); err != nil {
		return CPU{}, err
	}
	core, err := read(sys, path.Join(dir, "topology/thread_siblings_list"))
	if err == nil {
		cpu.Core, err = contract.ParseCPUs(core)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // an offline CPU has none
		return CPU{}, err
	}
	return cpu, nil
}

// gone reports whether the file is not there, or went after it was opened.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

func read(sys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(sys, name)
	return strings.TrimSpace(string(data)), err
}
