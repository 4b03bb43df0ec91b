// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// checkPartition compares what the kernel made of the container's cgroup, which
// the runtime has set up by now, with the decision. The kernel refuses a
// partition in the file's content only.
func checkPartition(d contract.Decision, pid int, read func(pid int) (string, error)) error {
	got, err := read(pid)
	if err != nil {
		return fmt.Errorf("its cpuset partition: %w", err)
	}
	if got != d.Partition {
		return fmt.Errorf("%s is %q, the claim's decision is %s for CPUs %s: others may run on them; look at who has them in cpuset.cpus.exclusive, the container is tried again",
			contract.FilePartition, oneLine(got), d.Partition, d.CPUs)
	}
	return nil
}

// ReadPartition returns the content of cpuset.cpus.partition of a process's
// cgroup. proc is where procfs is mounted in the runtime's namespaces, in which
// a hook runs.
func ReadPartition(proc string, pid int) (string, error) {
	cgroup, err := find(filepath.Join(proc, strconv.Itoa(pid), "cgroup"), func(line string) (string, bool) { return strings.CutPrefix(line, "0::") })
	if err != nil {
		return "", err
	}
	mount, err := find(filepath.Join(proc, "self/mountinfo"), cgroupMount)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(mount, filepath.Clean("/"+cgroup), contract.FilePartition))
	return strings.TrimSpace(string(data)), err
}

// cgroupMount takes the mount point out of a line of mountinfo that is about the
// whole hierarchy (proc_pid_mountinfo(5)).
func cgroupMount(line string) (string, bool) {
	fields := strings.Fields(line)
	for i, f := range fields {
		if f == "-" && i >= 6 && len(fields) > i+1 {
			return fields[4], fields[i+1] == "cgroup2" && fields[3] == "/"
		}
	}
	return "", false
}

// find returns what take makes of the first line of the file that it takes.
func find(path string, take func(line string) (string, bool)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 16<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if found, ok := take(lines.Text()); ok {
			return found, nil
		}
	}
	return "", errors.Join(fmt.Errorf("%s: no cgroup v2 in it", path), lines.Err())
}
