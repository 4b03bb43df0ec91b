// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// checkProcess returns an error if the container's process may use other CPUs than cpus,
// the decision's (I1, I5). The files of its cgroup do not show that: if all CPUs of a
// cgroup are offline, lost, or missing in a cgroup above it, the kernel lets its processes
// use the CPUs of its parent (cgroup-v2.rst, "cpuset.cpus.effective"). A process outside
// the cgroup dir is not the container's: that of a virtual machine is elsewhere.
func (h Hook) checkProcess(pid int, dir string, cpus contract.CPUSet) error {
	if pid <= 0 || cpus.IsEmpty() {
		return nil
	}
	process := filepath.Join(h.ProcRoot, strconv.Itoa(pid))
	inside, err := isInside(process, dir)
	var may contract.CPUSet
	if err == nil && inside {
		may, err = allowedCPUs(process)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// It has ended, and the creation fails without the guard.
		return nil
	case err != nil:
		return fmt.Errorf("it is not known which CPUs the container may use: %w", err)
	case inside && !may.IsSubsetOf(cpus):
		return fmt.Errorf("the kernel lets the container use CPUs %s, the claim's decision is %s: "+
			"CPUs of the claim are offline, or cgroup %s or one above it lacks them in cpuset.cpus.effective; %s", may, cpus, dir, advice)
	}
	return nil
}

// isInside reports whether the process is in the cgroup dir, or below it (cgroups(7),
// "/proc/pid/cgroup").
func isInside(process, dir string) (bool, error) {
	data, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(data)) {
		if path, unified := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::/"); unified {
			return path == dir || strings.HasPrefix(path, dir+"/"), nil
		}
	}
	return false, nil
}

// allowedCPUs returns the CPUs that the kernel lets the process use (proc_pid_status(5)).
func allowedCPUs(process string) (contract.CPUSet, error) {
	const field = "Cpus_allowed_list:"
	file := filepath.Join(process, "status")
	data, err := os.ReadFile(file)
	if err != nil {
		return contract.CPUSet{}, err
	}
	for line := range strings.Lines(string(data)) {
		if list, is := strings.CutPrefix(line, field); is {
			cpus, err := contract.ParseCPUs(strings.TrimSpace(list))
			if err != nil {
				return contract.CPUSet{}, fmt.Errorf("%s: %w", file, err)
			}
			return cpus, nil
		}
	}
	return contract.CPUSet{}, fmt.Errorf("%s has no field %s", file, field)
}
