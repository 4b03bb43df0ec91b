// SPDX-License-Identifier: Apache-2.0

package hollow

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// CPUTime returns what a process has used, from /proc/PID/stat (proc(5)): user and system time, in ticks of 10 ms.
func CPUTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(data), ") ")
	words := strings.Fields(after)
	const user, system = 11, 12
	if len(words) <= system {
		return 0, fmt.Errorf("/proc/%d/stat: %q has too few words", pid, data)
	}
	var ticks int64
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
