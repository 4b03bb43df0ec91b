// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// start starts a program in the cluster's namespace; the program outlives this process. Its output is in dir/name.log,
// its id in dir/name.pid.
func (c *Cluster) start(dir, name string, command ...string) error {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := c.InNamespace(command[0], command[1:]...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() { // no zombie while this process lives
		_ = cmd.Wait()
		close(ended)
	}()
	// A process that is not in the namespace yet would be taken for one that has ended.
	for !slices.Contains(c.processes(), cmd.Process.Pid) {
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s ended at once, the end of its log:\n%s", name, tail(string(text)))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return os.WriteFile(filepath.Join(dir, name+".pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644)
}

// pid returns the process id of a program that start started, 0 if the program does not run. The process must also be
// in the cluster's namespace, because the host may have given the id to another process.
func (c *Cluster) pid(dir, name string) int {
	data, err := os.ReadFile(filepath.Join(dir, name+".pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !slices.Contains(c.processes(), pid) {
		return 0
	}
	return pid
}

// stop kills a program that start started and waits until it is gone.
func (c *Cluster) stop(ctx context.Context, dir, name string) error {
	for {
		pid := c.pid(dir, name)
		if pid == 0 {
			return nil
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill %s, process %d: %w", name, pid, err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("process %d of %s does not end: %w", pid, name, err)
		}
	}
}

// poll calls ask until it returns nil. If ctx ends, the error wraps ask's last error.
func poll(ctx context.Context, every time.Duration, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if pause(ctx, every) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// run runs a short-lived program on the host and returns its standard output; an error has the end of both streams.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s%s",
			filepath.Base(name), strings.Join(args, " "), err, tail(out.String()), tail(diag.String()))
	}
	return out.String(), nil
}

// tail keeps the end of a long output.
func tail(s string) string {
	const limit = 4000
	if len(s) > limit {
		return "..." + s[len(s)-limit:]
	}
	return s
}
