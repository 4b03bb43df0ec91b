// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	clockMonotonic = 1
	absoluteTime   = 1 // TIMER_ABSTIME
	schedFIFO      = 1
	fifoPriority   = 80
	setTimerSlack  = 29 // PR_SET_TIMERSLACK
)

// cycled is the result of cycle. Times are nanoseconds.
type cycled struct {
	Action    string `json:"action"`
	Scheduler string `json:"scheduler"` // fifo, or normal if this process must not change it
	Locked    bool   `json:"locked"`    // memory cannot be paged out
	Interval  int64  `json:"interval"`
	Samples   uint64 `json:"samples"`
	Missed    int64  `json:"missed"` // wake-ups left out, because the wake-up before came after their time
	P50       int64  `json:"p50"`
	P99       int64  `json:"p99"`
	P999      int64  `json:"p99.9"`
	P9999     int64  `json:"p99.99"`
	Max       int64  `json:"max"`
	// From the kernel: how long the thread was ready to run and did not, and how often it had to leave its CPU.
	Waited    int64       `json:"waited"`
	Preempted int64       `json:"preempted"`
	Histogram [][3]uint64 `json:"histogram"` // least and greatest lateness of a bucket, count; empty buckets are left out
}

// cycle makes this thread sleep until the next multiple of interval, again and again, and counts how late it wakes up.
func cycle(interval, duration time.Duration) (cycled, error) {
	c := cycled{Action: "cycle", Scheduler: "normal", Interval: interval.Nanoseconds()}
	if interval <= 0 || duration < interval {
		return c, fmt.Errorf("cycle: interval %s and duration %s: want an interval above 0 and at least one of it", interval, duration)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	priority := int32(fifoPriority)
	if _, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedFIFO, uintptr(unsafe.Pointer(&priority))); errno == 0 {
		c.Scheduler = "fifo"
	}
	// Without the real-time scheduler the kernel may wake a thread 50 us late on purpose, to save wake-ups.
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0); errno != 0 {
		return c, fmt.Errorf("cycle: timer slack: %w", errno)
	}
	// Lock only what is mapped here: Go's runtime ends the program if a later mapping exceeds the limit of locked memory.
	c.Locked = syscall.Mlockall(syscall.MCL_CURRENT) == nil
	before, err := readThread()
	if err != nil {
		return c, err
	}
	var h histogram
	if c.Missed, err = h.sleep(interval.Nanoseconds(), duration.Nanoseconds()); err != nil {
		return c, err
	}
	after, err := readThread()
	if err != nil {
		return c, err
	}
	c.Samples, c.Max, c.Histogram = h.total, h.max, h.rows()
	c.P50, c.P99, c.P999, c.P9999 = h.quantile(0.5), h.quantile(0.99), h.quantile(0.999), h.quantile(0.9999)
	c.Waited, c.Preempted = after.waited-before.waited, after.preempted-before.preempted
	return c, nil
}

// sleep is the loop of cycle. It allocates nothing. missed is the number of wake-ups left out.
func (h *histogram) sleep(interval, duration int64) (missed int64, err error) {
	start := monotonic()
	end := start + duration
	for next := start + interval; next <= end; next += interval {
		until := syscall.NsecToTimespec(next)
		for {
			_, _, errno := syscall.Syscall6(syscall.SYS_CLOCK_NANOSLEEP,
				clockMonotonic, absoluteTime, uintptr(unsafe.Pointer(&until)), 0, 0, 0)
			if errno == 0 {
				break
			} else if errno != syscall.EINTR { // the runtime's own signals
				return missed, fmt.Errorf("sleep until %d ns: %w", next, errno)
			}
		}
		late := monotonic() - next
		h.add(late)
		// One delay is one sample, however many wake-ups fell into it. After the end no wake-up is missed.
		fell := min(late, end-next) / interval
		missed += fell
		next += fell * interval
	}
	return missed, nil
}

// monotonic returns the time that this machine is up, without suspensions, in nanoseconds.
func monotonic() int64 {
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

type thread struct{ waited, preempted int64 }

// readThread returns how long the calling thread has waited for a CPU, in nanoseconds, and how often it was preempted.
func readThread() (thread, error) {
	const file = "/proc/thread-self/schedstat"
	data, err := os.ReadFile(file)
	if err != nil {
		return thread{}, err
	}
	var ran, slices int64
	var t thread
	if _, err := fmt.Sscan(string(data), &ran, &t.waited, &slices); err != nil {
		return thread{}, fmt.Errorf("%s: %q: %w", file, strings.TrimSpace(string(data)), err)
	}
	fields, err := statusFields("/proc/thread-self/status")
	if err != nil {
		return thread{}, err
	}
	t.preempted, err = strconv.ParseInt(fields["nonvoluntary_ctxt_switches"], 10, 64)
	if err != nil {
		return thread{}, fmt.Errorf("nonvoluntary_ctxt_switches: %w", err)
	}
	return t, nil
}
