// SPDX-License-Identifier: Apache-2.0

package contracttest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"
)

// errNoFilter means that this machine has no system call filters.
var errNoFilter = errors.New("the kernel sets no system call filter")

// Failing returns the error of call while the kernel fails a system call with errno, as
// on a broken disk. fail begins that: call decides when.
func Failing(t testing.TB, number uintptr, errno syscall.Errno, call func(fail func()) error) error {
	result := make(chan error)
	go func() {
		// The filter is of this thread only, which ends with the goroutine.
		runtime.LockOSThread()
		var filterErr error
		err := call(func() { filterErr = filter(number, errno) })
		if filterErr != nil {
			err = filterErr
		}
		result <- err
	}()
	err := <-result
	if errors.Is(err, errNoFilter) {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return err
}

// filter fails the system call in this thread.
func filter(number uintptr, errno syscall.Errno) error {
	const (
		setNoNewPrivileges, setFilter, filterMode = 38, 22, 2                   // prctl(2)
		load, jumpIfEqual, end                    = 0x20, 0x15, 0x06            // bpf_common.h
		fail, allow                               = uint32(0x50000), 0x7fff0000 // seccomp.h
	)
	program := []syscall.SockFilter{
		{Code: load},
		{Code: jumpIfEqual, Jf: 1, K: uint32(number)},
		{Code: end, K: fail | uint32(errno)},
		{Code: end, K: allow},
	}
	p := syscall.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("%w: %w", errNoFilter, errno)
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_PRCTL, setFilter, filterMode, uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("%w: %w", errNoFilter, errno)
	}
	return nil
}
