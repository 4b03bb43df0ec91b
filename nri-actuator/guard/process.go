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
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// checkProcess returns an error if the kernel lets the container's process use other CPUs
// or NUMA nodes than the decision's (I1, I5). cpuset.cpus does not show that: if all CPUs
// of a cgroup are offline, or missing in a cgroup above, its processes may use the CPUs
// of its parent (cgroup-v2.rst, "cpuset.cpus.effective"). The process is compared, and not
// the cgroup dir, because some OCI runtimes put the process into a cgroup below dir. The
// process of a virtual machine is in another cgroup, and is not compared. A decision
// without CPUs or NUMA nodes leaves them to the shared pool, which the guard does not know.
func (h Hook) checkProcess(pid int, dir string, d contract.Decision) error {
	if pid <= 0 {
		return nil
	}
	process := filepath.Join(h.ProcRoot, strconv.Itoa(pid))
	inside, err := isInside(process, dir)
	if err == nil && inside {
		err = checkAllowed(filepath.Join(process, "status"), dir, d)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil // it has ended: the creation fails without the guard
	}
	return err
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

// checkAllowed compares the lists in a process's status file (proc_pid_status(5)) with
// the decision.
func checkAllowed(status, dir string, d contract.Decision) error {
	data, err := os.ReadFile(status)
	if err != nil {
		return err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	cpus, err := contract.ParseCPUs(fields["Cpus_allowed_list"])
	if err != nil {
		return fmt.Errorf("%s: Cpus_allowed_list: %w", status, err)
	}
	mems, err := contract.ParseNUMANodes(fields["Mems_allowed_list"])
	if err != nil {
		return fmt.Errorf("%s: Mems_allowed_list: %w", status, err)
	}
	if err := checkIDs("CPU", fileCPUs, dir, cpus, d.CPUs); err != nil {
		return err
	}
	return checkIDs("NUMA node", fileMems, dir, mems, d.Mems)
}

// checkIDs returns an error unless may, the ids that the kernel lets the process use, are
// some or all ids of want. The remaining ids of want may be offline. An empty want allows
// all ids.
func checkIDs[Of any](what, file, dir string, may, want contract.Set[Of]) error {
	if want.IsEmpty() || !may.IsEmpty() && may.IsSubsetOf(want) {
		return nil
	}
	// Without an id of the claim the kernel lets the process use what the cgroup above has.
	why := fmt.Sprintf("no %s of the claim is online and in %s.effective of all cgroups above %s", what, file, dir)
	if may.Overlaps(want) {
		why = fmt.Sprintf("compare %s of cgroup %s with Cpus_allowed_list and Mems_allowed_list of its processes", file, dir)
	}
	return fmt.Errorf("the kernel lets the container use %ss %q, the claim's decision is %s: %s; %s", what, may.String(), want, why, retried)
}
