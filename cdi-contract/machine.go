// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"fmt"
	"maps"
	"path"
	"slices"
)

// Machine has the values of the machine that claims ask for and no cgroup has. A file
// that a later node state does not concern gets its former value back. Pods require the
// features of what their claims ask for.
type Machine struct {
	// InterruptCPUs are the CPUs that may take interrupts. Each interrupt keeps the CPUs of
	// its former value that are InterruptCPUs; an interrupt without such CPUs gets all
	// InterruptCPUs. Absent: interrupts stay as they are.
	InterruptCPUs CPUSet `json:"interruptCPUs,omitzero"`
	// DeviceInterrupts are the interrupts of devices, which get other CPUs. An interrupt
	// gets the CPUs of the first entry whose pattern matches one of its names.
	DeviceInterrupts []DeviceInterrupts `json:"deviceInterrupts,omitempty"`
	// CPUs are files of CPUs. No CPU is in two entries.
	CPUs []CPUFiles `json:"cpus,omitempty"`
	// WorkQueueCPUs are the CPUs of the kernel's unbound work queues. Absent: as they are.
	WorkQueueCPUs CPUSet `json:"workQueueCPUs,omitzero"`
}

// DeviceInterrupts are the interrupts with a name that matches a pattern.
type DeviceInterrupts struct {
	// Pattern is a pattern such as "eth0-*": * stands for any text and ? for any character.
	Pattern string `json:"pattern"`
	CPUs    CPUSet `json:"cpus"`
}

// CPUFiles are files that some CPUs have in common, by their path below the CPU's
// directory in /sys/devices/system/cpu.
type CPUFiles struct {
	CPUs  CPUSet            `json:"cpus"`
	Files map[string]string `json:"files"`
}

// The files of a CPU.
const (
	// FileWakeupLatency is the longest time in which the CPU may wake up, in microseconds.
	// "n/a" allows no sleep from which the CPU needs time to wake up, and "0" any
	// (sysfs-devices-power, "pm_qos_resume_latency_us").
	FileWakeupLatency = "power/pm_qos_resume_latency_us"
	// NoWakeupLatency is the content for no latency at all.
	NoWakeupLatency = "n/a"

	FileGovernor     = "cpufreq/scaling_governor"
	FileMinFrequency = "cpufreq/scaling_min_freq" // kHz
	FileMaxFrequency = "cpufreq/scaling_max_freq" // kHz
)

const (
	// MaxPattern is the longest pattern of device interrupts, in bytes.
	MaxPattern = 64
	// PatternForm is the form of such a pattern: printable characters without / [ \ and ].
	PatternForm = `^[!-.0-Z^-~]+$`
)

var (
	patternForm = formOf(PatternForm)
	cpuFiles    = map[string]struct {
		feature string
		content form
	}{
		FileWakeupLatency: {FeatureWakeupLatency, formOf(`^(n/a|[1-9][0-9]{0,8})$`)},
		FileGovernor:      {FeatureFrequency, formOf(`^[a-z_]{1,15}$`)},
		FileMinFrequency:  {FeatureFrequency, formOf(`^[1-9][0-9]{0,9}$`)},
		FileMaxFrequency:  {FeatureFrequency, formOf(`^[1-9][0-9]{0,9}$`)},
	}
)

// CPUFileFeature returns the feature that a file of a CPU needs, empty for a file that is
// not on the contract's list.
func CPUFileFeature(file string) string { return cpuFiles[file].feature }

// CheckPattern returns why a pattern of device interrupts is not valid, nil if it is.
func CheckPattern(pattern string) error {
	if len(pattern) > MaxPattern || !patternForm.matches(pattern) {
		return fmt.Errorf("pattern %q: want 1 to %d printable characters without space and / [ \\ ], "+
			"in which * stands for any text and ? for any character", Excerpt(pattern, MaxPattern), MaxPattern)
	}
	return nil
}

// Match reports whether the pattern matches one of an interrupt's names.
func (d DeviceInterrupts) Match(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		matched, err := path.Match(d.Pattern, name)
		return err == nil && matched
	})
}

// Validate checks the values of the machine.
func (m Machine) Validate() error {
	if len(m.DeviceInterrupts) > 0 && m.InterruptCPUs.IsEmpty() {
		return fmt.Errorf("machine: deviceInterrupts without interruptCPUs")
	}
	for _, d := range m.DeviceInterrupts {
		if err := CheckPattern(d.Pattern); err != nil {
			return fmt.Errorf("machine: deviceInterrupts: %w", err)
		}
		if d.CPUs.IsEmpty() {
			return fmt.Errorf("machine: deviceInterrupts %q without cpus", d.Pattern)
		}
	}
	var all CPUSet
	for _, c := range m.CPUs {
		if c.CPUs.IsEmpty() || len(c.Files) == 0 || c.CPUs.Overlaps(all) {
			return fmt.Errorf("machine: cpus %q with %d files: want CPUs of no other entry and at least one file", c.CPUs.String(), len(c.Files))
		}
		all = all.Union(c.CPUs)
		if err := checkCPUFiles(c.Files); err != nil {
			return fmt.Errorf("machine: cpus %s: %w", c.CPUs, err)
		}
	}
	return nil
}

func checkCPUFiles(files map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch file, known := cpuFiles[name]; {
		case !known:
			return fmt.Errorf("file %q is not on the contract's list", name)
		case !file.content.matches(files[name]):
			return fmt.Errorf("%s: %q does not have the form %s", name, files[name], file.content())
		}
	}
	return nil
}

// Quiet is what a result asks of the machine for its CPUs, beside its decision.
type Quiet struct {
	// NoInterrupts keeps interrupts off the CPUs, except those of Device.
	NoInterrupts bool `json:"noInterrupts,omitempty"`
	// Device is a pattern: interrupts with a matching name come to the CPUs.
	Device string `json:"device,omitempty"`
	// NoWorkQueues keeps unbound work queues of the kernel off the CPUs.
	NoWorkQueues bool `json:"noWorkQueues,omitempty"`
	// Files are the files of each CPU.
	Files map[string]string `json:"files,omitempty"`
	// LimitMilli is the CPU limit that throttles a container of the result, in thousandths
	// of a CPU; 0 for none.
	LimitMilli int64 `json:"limitMilli,omitempty"`
}

// Features returns the features that a decision must require for the wishes, sorted.
func (q Quiet) Features() []string {
	var features []string
	if q.NoInterrupts {
		features = append(features, FeatureInterrupts)
	}
	if q.NoWorkQueues {
		features = append(features, FeatureHousekeeping)
	}
	for file := range q.Files {
		features = append(features, CPUFileFeature(file))
	}
	slices.Sort(features)
	return slices.Compact(features)
}

// check checks the wishes of a result with the decision d.
func (q Quiet) check(d Decision) error {
	if q.Device != "" {
		if err := CheckPattern(q.Device); err != nil {
			return fmt.Errorf("quiet: device: %w", err)
		}
	}
	if err := checkCPUFiles(q.Files); err != nil {
		return fmt.Errorf("quiet: %w", err)
	}
	switch {
	case q.Device != "" && !q.NoInterrupts:
		return fmt.Errorf("quiet: device %q without noInterrupts", q.Device)
	case d.CPUs.IsEmpty() && len(q.Features()) > 0:
		return fmt.Errorf("quiet: features %q need a decision with cpus", q.Features())
	}
	if f := unknown(q.Features(), d.Requires); f != "" {
		return fmt.Errorf("quiet: needs feature %q in requires", f)
	}
	return nil
}

// CPULimit is what a pod's spec limits the pod's CPU time to.
type CPULimit struct {
	// Milli is the limit of the whole pod in thousandths of a CPU, above 0.
	Milli int64 `json:"milli"`
	// Open reports whether only the pod's quota bounds its containers to Milli: a container has
	// no limit of its own, or the containers' limits are more in sum.
	Open bool `json:"open,omitempty"`
}
