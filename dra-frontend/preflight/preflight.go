// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether this node is unfit, when the frontend starts
// and while it runs. It reads files only.
package preflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"k8s.io/apimachinery/pkg/util/version"
)

// Node has the directories and settings that Check needs.
type Node struct {
	// Proc is the /proc file system.
	Proc fs.FS
	// Kubelet is kubelet's root directory, or a view of its state files.
	Kubelet fs.FS
	// MemoryHigh reports whether the driver will write memory.high.
	MemoryHigh bool
}

// Check returns all faults that make the node unfit, as one error, and warnings
// about absent files.
func Check(n Node) (warnings []string, err error) {
	var errs []error
	errs = append(errs, CheckCgroup(n.Proc))
	if n.MemoryHigh {
		if err := MemoryHigh(n.Proc); err != nil {
			errs = append(errs, fmt.Errorf("memoryQoS.throttlingFactor is set, but %w: drop it, or run a newer kernel", err))
		}
	}
	warnings, err = CheckPolicies(n.Kubelet)
	return warnings, errors.Join(append(errs, err)...)
}

// CheckPolicies returns the faults of kubelet's CPU and memory managers, and warnings
// about state files that are not visible. kubelet is as in [Node].
func CheckPolicies(kubelet fs.FS) (warnings []string, err error) {
	var errs []error
	for _, m := range []manager{
		{file: "cpu_manager_state", setting: "cpuManagerPolicy", none: "none"},
		{file: "memory_manager_state", setting: "memoryManagerPolicy", none: "None"},
	} {
		data, err := fs.ReadFile(kubelet, m.file)
		if errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, fmt.Sprintf("kubelet's %s is not visible: make sure that %s is %q", m.file, m.setting, m.none))
			continue
		}
		if err == nil {
			err = m.check(data)
		}
		if err == nil {
			err = checkShown(kubelet, m.file)
		}
		errs = append(errs, err)
	}
	return warnings, errors.Join(errs...)
}

// manager is a manager of kubelet that can assign CPUs or memory.
type manager struct {
	file    string // its state, in kubelet's directory
	setting string // of its policy, in kubelet's configuration
	// none is the setting's value with which the manager assigns nothing. Kubelet does not start with the other manager's
	// spelling of it.
	none string
}

// check refuses a manager that assigns something: kubelet's managers write cpusets too, and would
// assign the CPUs that this driver assigns. data is the manager's state.
func (m manager) check(data []byte) error {
	var state struct {
		PolicyName string `json:"policyName"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return fmt.Errorf("kubelet's %s: %w", m.file, err)
	}
	if !strings.EqualFold(state.PolicyName, m.none) {
		return fmt.Errorf("kubelet runs with %s %.40q, which hands out the same CPUs and memory as this driver: "+
			"set it to %q, drain the node, remove kubelet's %s, restart kubelet and delete the frontend's pod on this node",
			m.setting, state.PolicyName, m.none, m.file)
	}
	return nil
}

// ErrReplaced means that a mounted file was replaced. The mount of a file stays
// with the old file: only a new container sees the new file.
var ErrReplaced = errors.New("was replaced by another file, and the old one is mounted here")

// checkShown returns ErrReplaced if kubelet has replaced the file.
func checkShown(kubelet fs.FS, file string) error {
	info, err := fs.Stat(kubelet, file)
	if err != nil {
		return fmt.Errorf("kubelet's %s: %w", file, err)
	}
	if Replaced(info) {
		return fmt.Errorf("kubelet's %s %w", file, ErrReplaced)
	}
	return nil
}

// Replaced reports whether a mounted file was replaced: the mount keeps the old
// file, which has no name any more.
func Replaced(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}

// CheckCgroup returns an error unless /sys/fs/cgroup is cgroup v2, mounted as the
// driver needs it.
func CheckCgroup(proc fs.FS) error {
	data, err := fs.ReadFile(proc, "self/mountinfo")
	if err != nil {
		return fmt.Errorf("cgroup version: %w", err)
	}
	mounts, err := mountinfo.GetMountsFromReader(bytes.NewReader(data), func(m *mountinfo.Info) (skip, stop bool) {
		// Other programs may mount cgroup2 elsewhere too.
		return m.FSType != "cgroup2" || m.Mountpoint != "/sys/fs/cgroup", false
	})
	if err != nil {
		return fmt.Errorf("cgroup version: %w", err)
	}
	if len(mounts) == 0 {
		return errors.New("/sys/fs/cgroup is not cgroup v2: the driver needs the unified hierarchy, " +
			"boot with systemd.unified_cgroup_hierarchy=1 or a newer system")
	}
	for _, m := range mounts {
		if slices.Contains(strings.Split(m.VFSOptions, ","), "memory_hugetlb_accounting") {
			return errors.New("cgroup2 is mounted with memory_hugetlb_accounting, which counts hugepages as memory, " +
				"and claims count them separately: remount cgroup2 without this option")
		}
	}
	return nil
}

// minMemoryHigh is the first kernel without endless loops of tasks at
// memory.high between allocation and reclaim (commit b3ff92916af3).
var minMemoryHigh = version.MustParseGeneric("5.9")

// MemoryHigh returns why memory.high cannot be written on this node, nil if it
// can. Claims may ask for memory.high too.
func MemoryHigh(proc fs.FS) error {
	data, err := fs.ReadFile(proc, "sys/kernel/osrelease")
	if err != nil {
		return fmt.Errorf("kernel version: %w", err)
	}
	release := strings.TrimSpace(string(data))
	v, err := version.ParseGeneric(release)
	if err != nil {
		return fmt.Errorf("kernel version %q: %w", release, err)
	}
	if v.LessThan(minMemoryHigh) {
		return fmt.Errorf("kernel %s can hang tasks at memory.high, which is mended in %s", release, minMemoryHigh)
	}
	return nil
}

// BootID returns the id of the running boot.
func BootID(proc fs.FS) (string, error) {
	data, err := fs.ReadFile(proc, "sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", errors.New("boot id: sys/kernel/random/boot_id is empty")
	}
	return id, nil
}
