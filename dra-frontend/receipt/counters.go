// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Machine has the kernel's counters of all CPUs at one moment.
type Machine struct {
	// Interrupts are the interrupts of devices by number.
	Interrupts map[string]Interrupt
	// CPUs are the counters of the online CPUs by id.
	CPUs map[int]CPU
}

// Interrupt is an interrupt of devices.
type Interrupt struct {
	// Handlers are the names of the drivers that handle the interrupt.
	Handlers []string
	// Counts has how often the interrupt came to each possible CPU, from CPU 0 on. The
	// kernel's counters have 32 bits and begin again at 0.
	Counts []uint32
}

// CPU has the counters of a CPU since the boot.
type CPU struct {
	// Waited is the time in nanoseconds that threads have waited for the CPU.
	Waited uint64
	// Switches is how often a thread was put on the CPU.
	Switches uint64
}

const irqDir = "kernel/irq"

// ReadMachine reads the counters from sysfs and procfs. The kernel's list of interrupts
// in /proc is not read, because Kubernetes hides it from containers.
func ReadMachine(sys, proc fs.FS) (Machine, error) {
	interrupts, err := readInterrupts(sys)
	if err != nil {
		return Machine{}, fmt.Errorf("counters of interrupts: %w", err)
	}
	data, err := fs.ReadFile(proc, "schedstat")
	if err != nil {
		return Machine{}, fmt.Errorf("counters of CPUs: %w", err)
	}
	cpus, err := parseSchedstat(string(data))
	if err != nil {
		return Machine{}, fmt.Errorf("counters of CPUs: /proc/schedstat: %w", err)
	}
	return Machine{Interrupts: interrupts, CPUs: cpus}, nil
}

// readInterrupts reads the counters of the interrupts that have a handler
// (sysfs-kernel-irq, "actions" and "per_cpu_count").
func readInterrupts(sys fs.FS) (map[string]Interrupt, error) {
	entries, err := fs.ReadDir(sys, irqDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make(map[string]Interrupt)
	for _, e := range entries {
		handlers, err := fs.ReadFile(sys, path.Join(irqDir, e.Name(), "actions"))
		var counts []byte
		if err == nil {
			counts, err = fs.ReadFile(sys, path.Join(irqDir, e.Name(), "per_cpu_count"))
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue // the interrupt is gone, perhaps after its file was opened
		}
		if err != nil {
			return nil, err
		}
		names := strings.TrimSpace(string(handlers))
		if names == "" {
			continue
		}
		i := Interrupt{Handlers: strings.Split(names, ",")}
		if i.Counts, err = parseCounts(string(counts)); err != nil {
			return nil, fmt.Errorf("interrupt %.20q: %w", e.Name(), err)
		}
		all[e.Name()] = i
	}
	return all, nil
}

// parseCounts parses a per_cpu_count: numbers with commas between them.
func parseCounts(text string) ([]uint32, error) {
	var counts []uint32
	for field := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		n, err := strconv.ParseUint(field, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("per_cpu_count: %.20q is not a count", field)
		}
		counts = append(counts, uint32(n))
	}
	return counts, nil
}

// The words of a line of a CPU in /proc/schedstat (Documentation/scheduler/sched-stats.rst),
// which have been the same since version 15: the name, and nine counters.
const (
	cpuWords = 10
	waited   = 8
	switches = 9
)

// parseSchedstat parses /proc/schedstat.
func parseSchedstat(text string) (map[int]CPU, error) {
	all := make(map[int]CPU)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		digits, is := strings.CutPrefix(words[0], "cpu")
		if !is {
			continue
		}
		id, err := strconv.Atoi(digits)
		if err != nil || len(words) < cpuWords {
			return nil, fmt.Errorf("%.80q is not the line of a CPU", line)
		}
		var c CPU
		if c.Waited, err = strconv.ParseUint(words[waited], 10, 64); err == nil {
			c.Switches, err = strconv.ParseUint(words[switches], 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("CPU %d: %.80q has a word that is not a counter", id, line)
		}
		all[id] = c
	}
	if len(all) == 0 {
		return nil, errors.New("has no CPU: is the kernel built without CONFIG_SCHEDSTATS?")
	}
	return all, nil
}

// Counters are the counters of some CPUs.
type Counters struct {
	// Interrupts has how often each interrupt came to the CPUs, by number, without those
	// that never came. The counts begin again at 0 after 32 bits.
	Interrupts map[string]uint32 `json:"interrupts,omitempty"`
	// Waited and Switches are sums of the CPUs.
	Waited   uint64 `json:"waited,omitempty"`
	Switches uint64 `json:"switches,omitempty"`
}

// of returns the counters of cpus.
func (m Machine) of(cpus contract.CPUSet) Counters {
	c := Counters{Interrupts: make(map[string]uint32)}
	list := cpus.List()
	for number, interrupt := range m.Interrupts {
		for _, cpu := range list {
			if cpu < len(interrupt.Counts) && interrupt.Counts[cpu] != 0 {
				c.Interrupts[number] += interrupt.Counts[cpu]
			}
		}
	}
	for _, cpu := range list {
		c.Waited += m.CPUs[cpu].Waited
		c.Switches += m.CPUs[cpu].Switches
	}
	return c
}

// without returns the interrupts without a handler that matches the pattern; "" matches
// none.
func (m Machine) without(pattern string) map[string]Interrupt {
	if pattern == "" {
		return m.Interrupts
	}
	device := contract.DeviceInterrupts{Pattern: pattern}
	others := make(map[string]Interrupt)
	for number, i := range m.Interrupts {
		if !device.Match(i.Handlers) {
			others[number] = i
		}
	}
	return others
}

// Throttling is how often, and for how long, a CPU limit has stopped containers.
type Throttling struct {
	Times        uint64 `json:"times"`
	Microseconds uint64 `json:"microseconds"`
}

// ReadThrottling reads how often CPU limits have stopped the measured results: in the cgroups
// of their pods, and of the containers there that have the result's CPUs, alone or with other claimed CPUs of the pod. dir returns the
// directory of a pod below the cgroup mount. A pod without a cgroup was not throttled.
func ReadThrottling(
	cgroups fs.FS, claims []contract.ClaimRecord, dir func(contract.PodRecord) string,
) (map[contract.Key]Throttling, error) {
	claimed := make(map[string]contract.CPUSet) // by pod
	for _, c := range claims {
		for _, pod := range c.Pods {
			claimed[pod.UID] = claimed[pod.UID].Union(c.CPUs())
		}
	}
	all := make(map[contract.Key]Throttling)
	for _, c := range claims {
		for i, r := range c.Results {
			if !Measured(r) {
				continue
			}
			var sum Throttling
			for _, pod := range c.Pods {
				t, err := podThrottling(cgroups, dir(pod), r.Decision.CPUs, claimed[pod.UID])
				if err != nil {
					return nil, fmt.Errorf("throttling of claim %s/%s: %w", c.Namespace, c.Name, err)
				}
				sum = sum.plus(t)
			}
			all[contract.Key{ClaimUID: c.UID, Index: i}] = sum
		}
	}
	return all, nil
}

func (t Throttling) plus(o Throttling) Throttling {
	return Throttling{Times: t.Times + o.Times, Microseconds: t.Microseconds + o.Microseconds}
}

// podThrottling adds up the pod and its containers that have cpus. A container without a claim has CPUs that are not claimed.
func podThrottling(cgroups fs.FS, dir string, cpus, claimed contract.CPUSet) (Throttling, error) {
	sum, err := readThrottling(cgroups, dir)
	if err != nil {
		return sum, err
	}
	entries, err := fs.ReadDir(cgroups, dir)
	if err != nil {
		return sum, unlessGone(err)
	}
	for _, e := range entries {
		container := path.Join(dir, e.Name())
		if own, err := containerCPUs(cgroups, container, e); err != nil || !cpus.IsSubsetOf(own) || !own.IsSubsetOf(claimed) {
			if err := unlessGone(err); err != nil {
				return sum, err
			}
			continue
		}
		t, err := readThrottling(cgroups, container)
		if err != nil {
			return sum, err
		}
		sum = sum.plus(t)
	}
	return sum, nil
}

// containerCPUs returns the CPUs of the entry of a pod's directory, none for a file.
func containerCPUs(cgroups fs.FS, dir string, e fs.DirEntry) (contract.CPUSet, error) {
	if !e.IsDir() {
		return contract.CPUSet{}, nil
	}
	data, err := fs.ReadFile(cgroups, path.Join(dir, "cpuset.cpus"))
	if err != nil {
		return contract.CPUSet{}, err
	}
	return contract.ParseCPUs(strings.TrimSpace(string(data)))
}

// unlessGone returns nil if err is that a file or directory, or its cgroup, is gone.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}

func readThrottling(cgroups fs.FS, dir string) (t Throttling, err error) {
	data, err := fs.ReadFile(cgroups, path.Join(dir, "cpu.stat"))
	if err != nil {
		return t, unlessGone(err)
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		to, known := map[string]*uint64{"nr_throttled": &t.Times, "throttled_usec": &t.Microseconds}[key]
		if !known {
			continue
		}
		if *to, err = strconv.ParseUint(value, 10, 64); err != nil {
			return t, fmt.Errorf("%s/cpu.stat: %.40q is not a counter", dir, line)
		}
	}
	return t, nil
}
