// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const policyBind = 2 // MPOL_BIND

// bind makes all memory that this program takes later come from one NUMA node, also the page cache of files that it
// reads. It needs CAP_SYS_NICE: without it the default seccomp profile refuses the call.
func bind(node int) error {
	if node < 0 || node > 62 {
		return fmt.Errorf("bind: NUMA node %d: give 0 to 62", node)
	}
	runtime.LockOSThread() // the policy is the thread's: all actions must run on this thread
	mask := uint64(1) << node
	// The kernel uses one bit less than the given 64.
	if _, _, errno := syscall.Syscall(syscall.SYS_SET_MEMPOLICY, policyBind, uintptr(unsafe.Pointer(&mask)), 64); errno != 0 {
		return fmt.Errorf("bind to NUMA node %d: %w", node, errno)
	}
	return nil
}

// readFile makes a sparse file of size bytes and reads it whole, several times. The page cache of a hole is like any
// other page cache, but costs no disk.
func readFile(file string, size, times int) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for range times {
		for at := int64(0); at < int64(size); at += int64(len(block)) {
			if _, err := f.ReadAt(block, at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
		}
	}
	return nil
}

// grow maps size bytes and writes to them page by page, with a pause before each step bytes. With huge the kernel may
// give pages of 2 MiB, which is fast.
func grow(size, step int, pause time.Duration, huge bool) error {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", size, err)
	}
	if !huge {
		if err := syscall.Madvise(mem, adviseNoHugepage); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("advise against huge pages: %w", err)
		}
	}
	for at := 0; at < size; at += os.Getpagesize() {
		if at%step == 0 {
			time.Sleep(pause)
		}
		mem[at] = 1
	}
	return nil
}
