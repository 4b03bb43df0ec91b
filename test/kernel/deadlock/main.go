// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command deadlock makes isolated cpuset partitions, one after the other, while other processes are moved between
// cgroups. On Linux 6.12 the kernel can hang for good then (docs/concepts/exclusivity.md). It is the first process of a
// virtual machine that is there for nothing else. Command deadlock of test/cluster starts the machine.
//
// Its options come from the kernel's command line: cycles=N, movers=N, end=rmdir or member (what ends a partition),
// patience=SECONDS after which a write that has not returned is killed (0: never). Its last line is "done N cycles ...",
// "failed: ..." or "no partitions". If the kernel hangs, its own detector writes "blocked for more than N seconds" with
// the traces, and ends the machine.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/boot"
)

const (
	parent = boot.Cgroups + "/kubepods"
	claim  = parent + "/claim"
	cpus   = "1-2"

	// hungAfter is how many seconds a task may wait before the kernel says that it hangs.
	hungAfter = "30"

	// countFile has the number of moves of each mover, 8 bytes for each.
	countFile = "/moves"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == "write" {
		if err := write(os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "move" {
		fmt.Println("mover", os.Args[2], move(os.Args[2]))
		return
	}
	result, err := run()
	if err != nil {
		result = "failed: " + err.Error()
	}
	fmt.Println(result)
	_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
}

// options are the words of the kernel's command line for this program.
type options struct {
	cycles, movers int
	patience       time.Duration // 0: writes are not killed
	end            string
}

func parse(words map[string]string) (o options, err error) {
	seconds := 0
	for name, value := range map[string]*int{"cycles": &o.cycles, "movers": &o.movers, "patience": &seconds} {
		if *value, err = strconv.Atoi(words[name]); err != nil {
			return o, fmt.Errorf("%s=%s: %w", name, words[name], err)
		}
	}
	o.patience, o.end = time.Duration(seconds)*time.Second, words["end"]
	if o.end != "rmdir" && o.end != "member" {
		return o, fmt.Errorf("end=%s: give rmdir or member", o.end)
	}
	return o, nil
}

func run() (string, error) {
	words, err := boot.Start()
	if err != nil {
		return "", err
	}
	o, err := parse(words)
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"hung_task_timeout_secs": hungAfter, "hung_task_panic": "1", "printk": "7", // 7: the traces, too
	} {
		if err := write("/proc/sys/kernel/"+name, value); err != nil {
			return "", err
		}
	}
	if err := prepare(); errors.Is(err, os.ErrNotExist) {
		return "no partitions", nil
	} else if err != nil {
		return "", err
	}
	if err := startMovers(o.movers); err != nil {
		return "", err
	}
	m := maker{options: o}
	for m.cycle = 1; m.cycle <= o.cycles; m.cycle++ {
		fmt.Println("cycle", m.cycle)
		if err := m.one(); err != nil {
			return "", fmt.Errorf("cycle %d: %w", m.cycle, err)
		}
	}
	moves, err := moved(o.movers)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("done %d cycles, %d writes killed, %d partitions made, %v moves", o.cycles, m.killed, m.made, moves), nil
}

// prepare makes the cgroups that stay. The error is os.ErrNotExist if the kernel makes no remote partitions.
func prepare() error {
	for _, dir := range []string{parent, boot.Cgroups + "/a", boot.Cgroups + "/b"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{boot.Cgroups, parent} {
		if err := write(dir+"/cgroup.subtree_control", "+cpuset"); err != nil {
			return err
		}
	}
	return write(parent+"/cpuset.cpus.exclusive", cpus)
}

// startMovers starts the processes that move themselves between two cgroups. They end with the machine.
func startMovers(n int) error {
	if err := os.WriteFile(countFile, make([]byte, 8*n), 0o600); err != nil {
		return err
	}
	for i := range n {
		cmd := exec.Command("/proc/self/exe", "move", strconv.Itoa(i))
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	return nil
}

func move(number string) error {
	i, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	counts, err := os.OpenFile(countFile, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for n := uint64(1); ; n++ {
		if err := write(boot.Cgroups+"/"+string("ab"[n%2])+"/cgroup.procs", "0"); err != nil {
			return err
		}
		if _, err := counts.WriteAt(binary.LittleEndian.AppendUint64(nil, n), int64(8*i)); err != nil {
			return err
		}
	}
}

// moved returns the number of moves of each mover.
func moved(movers int) ([]uint64, error) {
	data, err := os.ReadFile(countFile)
	counts := make([]uint64, movers)
	for i := range counts {
		counts[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return counts, err
}

// maker makes isolated partitions.
type maker struct {
	options
	cycle, killed, made int
}

// one makes a cgroup an isolated partition, and removes it.
func (m *maker) one() error {
	if err := os.Mkdir(claim, 0o755); err != nil {
		return err
	}
	for _, file := range []string{"/cpuset.cpus", "/cpuset.cpus.exclusive"} {
		if err := write(claim+file, cpus); err != nil {
			return err
		}
	}
	if err := m.partition("isolated"); err != nil {
		return err
	}
	state, err := read(claim + "/cpuset.cpus.partition")
	if err != nil {
		return err
	}
	if state == "isolated" {
		m.made++
	} else if m.patience == 0 {
		return fmt.Errorf("the partition is %q", state)
	}
	if m.end == "member" {
		if err := m.partition("member"); err != nil {
			return err
		}
	}
	if err := os.Remove(claim); err != nil {
		return err
	}
	// The kernel gives back the CPUs of a removed cgroup later. If it hangs meanwhile, its detector ends the machine.
	for isolated := cpus; isolated != ""; {
		if isolated, err = read(boot.Cgroups + "/cpuset.cpus.isolated"); err != nil {
			return err
		}
	}
	return nil
}

// partition writes cpuset.cpus.partition of the claim, itself or by a process that can be killed.
func (m *maker) partition(content string) error {
	if m.patience == 0 {
		return write(claim+"/cpuset.cpus.partition", content)
	}
	cmd := exec.Command("/proc/self/exe", "write", claim+"/cpuset.cpus.partition", content)
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	// Neither a goroutine nor a new thread: in a kernel that hangs no thread can be made.
	ended, err := waitFor(pidfd, m.patience)
	if err != nil {
		return err
	}
	if ended {
		return cmd.Wait()
	}
	before, err := moved(m.movers)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil {
		return err
	}
	m.killed++
	if _, err := waitFor(pidfd, -1); err != nil {
		return err
	}
	took := time.Since(start)
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	fmt.Printf("killed: %s did not return; it ended after %s; %s\n", content, took.Round(time.Millisecond), state())
	// All movers go on.
	for going := 0; going < m.movers; {
		now, err := moved(m.movers)
		if err != nil {
			return err
		}
		going = 0
		for i := range now {
			if now[i] > before[i]+1 {
				going++
			}
		}
	}
	return nil
}

// waitFor waits for the end of a process, without end if the limit is negative, and reports whether it has ended.
func waitFor(pidfd int, limit time.Duration) (ended bool, err error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0, err
		}
	}
}

// state returns what the kernel says about the CPUs.
func state() string {
	var all []string
	for _, name := range []string{
		claim + "/cpuset.cpus.partition", claim + "/cpuset.cpus.effective", boot.Cgroups + "/cpuset.cpus.isolated",
		boot.Cgroups + "/cpuset.cpus.effective", "/sys/devices/virtual/workqueue/cpumask",
	} {
		content, err := read(name)
		if err != nil {
			content = err.Error()
		}
		all = append(all, fmt.Sprintf("%s=%q", filepath.Base(name), content))
	}
	return strings.Join(all, " ")
}

func read(name string) (string, error) {
	data, err := os.ReadFile(name)
	return strings.TrimSpace(string(data)), err
}

func write(name, content string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content + "\n")
	return errors.Join(err, file.Close())
}
