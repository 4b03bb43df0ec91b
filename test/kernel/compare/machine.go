// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/boot"
)

const mount = boot.Cgroups

// machine is the machine that the program runs on.
type machine struct {
	cpus, nodes int
	// processes are the processes of cgroups.
	processes map[string][]*exec.Cmd
}

func openMachine() (*machine, error) {
	nodes, err := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	if err != nil {
		return nil, err
	}
	return &machine{cpus: runtime.NumCPU(), nodes: max(1, len(nodes)), processes: make(map[string][]*exec.Cmd)}, nil
}

// do takes an operation.
func (m *machine) do(o kerneltest.Operation) error {
	dir := filepath.Join(mount, o.Dir)
	switch o.Kind {
	case kerneltest.Mkdir:
		return syscall.Mkdir(dir, 0o755)
	case kerneltest.Rmdir:
		return syscall.Rmdir(dir)
	case kerneltest.Write:
		if o.Namespace != "" {
			return m.writeFrom(o)
		}
		return write(filepath.Join(dir, o.File), o.Content)
	case kerneltest.Attach:
		return m.attach(o.Dir)
	case kerneltest.Detach:
		return m.detach(o.Dir)
	case kerneltest.Offline:
		return write(onlineFile(o.CPU), "0")
	case kerneltest.Online:
		return write(onlineFile(o.CPU), "1")
	}
	return fmt.Errorf("unknown operation %q", o.Kind)
}

func onlineFile(cpu int) string { return fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu) }

// write writes in one system call.
func write(name, content string) error {
	fd, err := syscall.Open(name, syscall.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, []byte(content+"\n"))
	return err
}

func (m *machine) attach(dir string) error {
	cmd := exec.Command("/init", "pause")
	if err := startIn(dir, cmd); err != nil {
		return err
	}
	m.processes[dir] = append(m.processes[dir], cmd)
	return nil
}

// startIn starts a process and moves it into a cgroup.
func startIn(dir string, cmd *exec.Cmd) error {
	if _, err := os.Stat(filepath.Join(mount, dir)); err != nil {
		return syscall.ENOENT
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := write(filepath.Join(mount, dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
		return errors.Join(err, stop(cmd))
	}
	return nil
}

// writeFrom has a process in the cgroup of the operation's namespace write. The process
// makes the namespace and writes when its input ends. Its exit code is the error.
func (m *machine) writeFrom(o kerneltest.Operation) error {
	cmd := exec.Command("/init", "write", filepath.Join(mount, o.Dir, o.File), o.Content)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := startIn(o.Namespace, cmd); err != nil {
		return err
	}
	if err := input.Close(); err != nil {
		return errors.Join(err, stop(cmd))
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() != unknown {
		return syscall.Errno(exit.ExitCode())
	} else if err != nil {
		return fmt.Errorf("the process that writes: %w", err)
	}
	return nil
}

// unknown is the exit code of a process that failed otherwise than by an error of the
// write.
const unknown = 255

// writeInNamespace waits for the end of the input, makes a cgroup namespace, and writes.
// It returns the process's exit code.
func writeInNamespace(name, content string) int {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return unknown
	}
	// A namespace is a thread's.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return unknown
	}
	var errno syscall.Errno
	if err := write(name, content); errors.As(err, &errno) {
		return int(errno)
	} else if err != nil {
		return unknown
	}
	return 0
}

func (m *machine) detach(dir string) error {
	if _, err := os.Stat(filepath.Join(mount, dir)); err != nil {
		return syscall.ENOENT
	}
	list := m.processes[dir]
	if len(list) == 0 {
		return syscall.ESRCH
	}
	m.processes[dir] = list[1:]
	return stop(list[0])
}

func stop(cmd *exec.Cmd) error {
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
}

// read returns the content of a cgroup's file.
func (m *machine) read(dir, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(mount, dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return "", syscall.ENOENT
	}
	return strings.TrimSpace(string(data)), err
}

// clean removes all cgroups and their processes, and brings all CPUs back. The error
// says what stays.
func (m *machine) clean() error {
	for dir := range m.processes {
		for len(m.processes[dir]) > 0 {
			if err := m.detach(dir); err != nil {
				return err
			}
		}
	}
	for cpu := 1; cpu < m.cpus; cpu++ {
		if err := write(onlineFile(cpu), "1"); err != nil {
			return err
		}
	}
	var dirs []string
	err := filepath.WalkDir(mount, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && name != mount {
			dirs = append(dirs, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		err := write(filepath.Join(dir, "cpuset.cpus.partition"), "member")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, dir := range dirs {
		if err := syscall.Rmdir(dir); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	got, err := m.read("", "cpuset.cpus.effective")
	if want := fmt.Sprintf("0-%d", m.cpus-1); err != nil || got != want {
		return fmt.Errorf("the root cgroup has CPUs %q, not %s (%v)", got, want, err)
	}
	return nil
}
