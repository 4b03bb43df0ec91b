// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Features are the names in "requires", of a decision or of a pod in the node state,
// and in the actuator's announcement.
const (
	// FeatureOOMScore is the feature of a decision with an oom_score_adj.
	FeatureOOMScore = "oomScoreAdj"
	// FeatureMemoryPolicy is the feature of a decision with a memory policy.
	FeatureMemoryPolicy = "memoryPolicy"
	// FeatureWeightedInterleave is the feature of a policy with the mode
	// weightedInterleave.
	FeatureWeightedInterleave = "weightedInterleave"
	// FeaturePartition is the feature of a decision with a partition.
	FeaturePartition = "partition"
	// FeatureIsolated is the feature of a decision with an isolated partition.
	FeatureIsolated = "isolated"
	// FeatureQuota is the feature of a decision with a quota.
	FeatureQuota = "quota"
	// FeatureInterrupts, FeatureHousekeeping, FeatureWakeupLatency and FeatureFrequency are
	// the features of decisions whose CPUs the node state's [Machine] is about: interrupts,
	// unbound work queues, wake-up latency and frequency.
	FeatureInterrupts    = "interrupts"
	FeatureHousekeeping  = "housekeeping"
	FeatureWakeupLatency = "wakeupLatency"
	FeatureFrequency     = "frequency"
)

// Features returns the features of this contract.
func Features() []string {
	return append([]string{FeatureOOMScore, FeatureMemoryPolicy, FeatureWeightedInterleave, FeaturePartition, FeatureIsolated, FeatureQuota},
		MachineFeatures()...)
}

// MachineFeatures returns the features that need files of the machine.
func MachineFeatures() []string {
	return []string{FeatureInterrupts, FeatureHousekeeping, FeatureWakeupLatency, FeatureFrequency}
}

// ErrUnknownFeature means that this program does not know a feature that a decision or
// a pod requires. What requires the feature is valid otherwise.
var ErrUnknownFeature = errors.New("upgrade nri-actuator")

var errEmptyFeature = errors.New("requires: empty feature name")

// unknown returns the first of the required features that known lacks, or "".
func unknown(required, known []string) string {
	for _, f := range required {
		if !slices.Contains(known, f) {
			return f
		}
	}
	return ""
}

// checkRequired returns [ErrUnknownFeature] if known lacks a required feature.
func checkRequired(what string, required, known []string) error {
	if f := unknown(required, known); f != "" {
		return fmt.Errorf("%s requires feature %q, this program knows [%s]: %w", what, f, strings.Join(known, " "), ErrUnknownFeature)
	}
	return nil
}

// Platform is what a node has below the actuator.
type Platform struct {
	// Runtime is "containerd", "cri-o" or another runtime's name.
	Runtime, RuntimeVersion string
	// NRIVersion is "unknown" or empty for a runtime that does not know it.
	NRIVersion string
	// Kernel is the kernel's release.
	Kernel string
	// Partitions reports whether the actuator has found that the kernel makes cpuset
	// partitions below kubepods.
	Partitions bool
	// Machine are the machine features whose files the actuator has found that it can write.
	Machine []string
}

// need is what a feature needs of the platform.
type need struct {
	nri, containerd, crio, kernel version
	partitions                    bool
	// files are the files of a machine feature, empty for another feature. value is the
	// chart's value that mounts them.
	files, value string
}

// needOf returns the need of a feature. Runtimes do not always know their NRI's
// version: the runtimes' versions are the first with that NRI.
//
// NRI carries an OOM score since 0.7, and a memory policy since 0.12; an older one
// drops the policy silently. Linux has MPOL_PREFERRED_MANY since 5.15, and
// MPOL_WEIGHTED_INTERLEAVE since 6.9 (set_mempolicy(2)). The OCI runtime is not part of
// it: the guard asks the OCI runtime.
func needOf(feature string) (n need, known bool) {
	policy := need{nri: version{0, 12}, containerd: version{2, 3}, crio: version{1, 37}, kernel: version{5, 15}}
	switch feature {
	case FeatureOOMScore:
		return need{nri: version{0, 7}, containerd: version{2, 0}, crio: version{1, 32}}, true
	case FeatureMemoryPolicy:
		return policy, true
	case FeatureWeightedInterleave:
		policy.kernel = version{6, 9}
		return policy, true
	case FeaturePartition:
		return need{partitions: true}, true
	case FeatureIsolated:
		// Older kernels wait for a new thread while they hold the lock of all cpusets, and
		// can hang for good (docs/concepts/exclusivity.md). A try would hang as well, so the
		// release decides.
		return need{partitions: true, kernel: version{7, 0}}, true
	case FeatureQuota:
		return need{}, true
	case FeatureInterrupts:
		return need{files: "/proc/irq", value: "actuator.machine.interrupts"}, true
	case FeatureHousekeeping:
		return need{files: "/sys/devices/virtual/workqueue/cpumask", value: "actuator.machine.workQueues"}, true
	case FeatureWakeupLatency:
		return need{files: FileWakeupLatency + " of CPUs", value: "actuator.machine.cpuPower"}, true
	case FeatureFrequency:
		return need{files: FileGovernor + " of CPUs", value: "actuator.machine.cpuPower"}, true
	}
	return need{}, false
}

// Features returns the features of this contract that the platform can have.
func (p Platform) Features() []string {
	return slices.DeleteFunc(Features(), func(f string) bool { return p.Lacks(f) != "" })
}

// Lacks returns what the platform has and what the feature needs, for people. It
// returns "" if the platform can have the feature.
func (p Platform) Lacks(feature string) string {
	n, known := needOf(feature)
	carried := atLeast(p.NRIVersion, n.nri) || p.Runtime == "containerd" && atLeast(p.RuntimeVersion, n.containerd) ||
		p.Runtime == "cri-o" && atLeast(p.RuntimeVersion, n.crio)
	switch {
	case !known:
		return "this program does not know the feature"
	case n.partitions && !p.Partitions:
		return fmt.Sprintf("nri-actuator has made no cpuset partition on this node (Linux %s): "+
			"partitions need Linux 6.7, the machine's cgroup mount, and kubepods right below the mount's root", p.Kernel)
	case n.files != "" && !slices.Contains(p.Machine, feature):
		return fmt.Sprintf("nri-actuator could not write %s: the machine has no such file, or the chart's value %s is off", n.files, n.value)
	case n.nri != version{} && !carried:
		return fmt.Sprintf("the runtime is %s %s with NRI %s, the feature needs NRI %s (containerd %s, CRI-O %s)",
			p.Runtime, p.RuntimeVersion, p.NRIVersion, n.nri, n.containerd, n.crio)
	case n.kernel != version{} && !atLeast(p.Kernel, n.kernel):
		return fmt.Sprintf("the kernel is Linux %s, the feature needs Linux %s", p.Kernel, n.kernel)
	}
	return ""
}

// NamesDevices reports whether the runtime names a container's CDI devices, as
// containerd does since 2.3. A runtime that does not name them gives an empty
// list, so the version says what an empty list means.
func (p Platform) NamesDevices() bool {
	return p.Runtime == "containerd" && atLeast(p.RuntimeVersion, version{2, 3})
}

// version is the first two numbers of a version.
type version [2]int

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

var majorMinor = formOf(`^v?([0-9]{1,4})\.([0-9]{1,4})\b`)

// atLeast reports whether the version in text is least or newer. A text without
// a version is older.
func atLeast(text string, least version) bool {
	m := majorMinor().FindStringSubmatch(text)
	if m == nil {
		return false
	}
	var v version
	v[0], _ = strconv.Atoi(m[1])
	v[1], _ = strconv.Atoi(m[2])
	return slices.Compare(v[:], least[:]) >= 0
}

// Platform returns the platform as the actuator announced it.
func (a Announcement) Platform() Platform {
	return Platform{
		Runtime: a.Runtime, RuntimeVersion: a.RuntimeVersion, NRIVersion: a.NRIVersion, Kernel: a.Kernel,
		Partitions: slices.Contains(a.Features, FeaturePartition),
		Machine:    slices.DeleteFunc(MachineFeatures(), func(f string) bool { return !slices.Contains(a.Features, f) }),
	}
}

// SetPlatform announces the platform and its features.
func (a *Announcement) SetPlatform(p Platform) {
	a.Runtime, a.RuntimeVersion, a.NRIVersion, a.Kernel, a.Features = p.Runtime, p.RuntimeVersion, p.NRIVersion, p.Kernel, p.Features()
}

// Lacks returns why the node does not have the feature, for people, and "" if the
// actuator has announced the feature.
func (a Announcement) Lacks(feature string) string {
	switch why := a.Platform().Lacks(feature); {
	case slices.Contains(a.Features, feature):
		return ""
	case why != "" && a.Kernel != "":
		return why
	}
	// Without a kernel, the actuator is older than this contract or has met no runtime yet.
	// With one, an older actuator lacks the feature.
	return fmt.Sprintf("nri-actuator announces [%s] with %s %s: upgrade nri-actuator, the runtime or the kernel",
		strings.Join(a.Features, " "), a.Runtime, a.RuntimeVersion)
}
