// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpHugePages keeps the kernel from giving this process transparent huge pages (prctl(2)). On a node where all programs
// get them, a daemon's heap of a few MiB would have several times its size in memory.
func giveUpHugePages() error {
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_THP_DISABLE: %w", err)
	}
	return nil
}

// startTime is how long a daemon may take to start. After that, dropProgram runs.
const startTime = time.Minute

// dropProgram takes the pages of the program's file out of this process. The start of a daemon uses most of these pages
// once, for example to register the types of all APIs of Kubernetes. Later a daemon uses a tenth of them. The kernel gives a page
// back when it is used, and reads it from the disk only if it has dropped the page itself since (madvise(2), MADV_DONTNEED).
func dropProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range unwritten(string(smaps), program) {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise %d bytes of %s: %w", m.end-m.start, program, errno)
		}
	}
	return nil
}

// mapping is the addresses from start to end-1.
type mapping struct{ start, end uintptr }

// unwritten returns the mappings of the file that the process cannot write and has not written. A written page, for example
// one of the dynamic linker, would get the file's content again. The kernel counts written pages as anonymous or swapped.
// smaps is the text of /proc/self/smaps (proc_pid_smaps(5)), in which VmFlags is the last line of a mapping.
func unwritten(smaps, file string) (all []mapping) {
	var m mapping
	var candidate bool
	for line := range strings.Lines(smaps) {
		var next mapping
		var access, offset, device, inode, path string
		// The last fields may be absent.
		n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &next.start, &next.end, &access, &offset, &device, &inode, &path)
		if n >= 3 {
			m, candidate = next, path == file && !strings.Contains(access, "w")
		}
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "Anonymous", "Swap":
			candidate = candidate && strings.TrimSpace(value) == "0 kB"
		case "VmFlags":
			if candidate {
				all = append(all, m)
			}
		}
	}
	return all
}
