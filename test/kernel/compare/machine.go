// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel"
)

const mount = "/sys/fs/cgroup"

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
func (m *machine) do(o kernel.Operation) error {
	dir := filepath.Join(mount, o.Dir)
	switch o.Kind {
	case kernel.Mkdir:
		return syscall.Mkdir(dir, 0o755)
	case kernel.Rmdir:
		return syscall.Rmdir(dir)
	case kernel.Write:
		return write(filepath.Join(dir, o.File), o.Content)
	case kernel.Attach:
		return m.attach(o.Dir)
	case kernel.Detach:
		return m.detach(o.Dir)
	case kernel.Offline:
		return write(onlineFile(o.CPU), "0")
	case kernel.Online:
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
	if _, err := os.Stat(filepath.Join(mount, dir)); err != nil {
		return syscall.ENOENT
	}
	cmd := exec.Command("/init", "pause")
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := write(filepath.Join(mount, dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
		return errors.Join(err, stop(cmd))
	}
	m.processes[dir] = append(m.processes[dir], cmd)
	return nil
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
