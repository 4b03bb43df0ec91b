// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// CollectLogs gathers into dir what explains a failure: the control plane's logs, API objects, and for each node the
// console, the logs of kubelet, containerd and pods, the CDI directories, and the cgroups' values. It goes on after an
// error and returns all errors at the end.
func (c *Cluster) CollectLogs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, name := range controlPlane {
		errs = append(errs, copyLog(c.path("run", "control-plane", name+".log"), filepath.Join(dir, name+".log")))
	}
	for _, what := range []string{"nodes", "pods", "events", "resourceslices", "resourceclaims", "deviceclasses"} {
		out, err := c.Kubectl(ctx, "get", what, "--all-namespaces", "-o", "yaml", "--request-timeout", "20s")
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, what+".yaml"), []byte(out), 0o644))
	}
	for _, node := range c.NodeNames() {
		sub := filepath.Join(dir, node)
		errs = append(errs, os.MkdirAll(sub, 0o755), c.nodeLogs(ctx, node, sub))
	}
	return errors.Join(errs...)
}

// nodeQuestions are the commands that collect a node's logs, by the file for the output.
var nodeQuestions = map[string]string{
	"dmesg.txt":      "dmesg",
	"units.txt":      "[ ! -S /run/systemd/private ] || systemctl list-units --all --no-pager; true",
	"processes.txt":  "ps -o pid,ppid,stat,args",
	"memory.txt":     "cat /proc/meminfo /sys/devices/system/node/node*/meminfo",
	"containers.txt": "ctr -n k8s.io containers list; ctr -n k8s.io tasks list; ctr -n k8s.io images list",
	"cgroups.txt": "find /sys/fs/cgroup \\( -name 'cpuset.*' -o -name 'memory.m*' -o -name 'memory.low' -o -name memory.high " +
		"-o -name memory.current -o -name 'memory.events' -o -name 'hugetlb.*' -o -name cgroup.procs \\) " +
		"! -path '*/system/*' ! -path '*/system.slice/*' ! -path /sys/fs/cgroup/cgroup.procs -exec grep -sH '' {} +; true",
	"logs.tar": "tar -C / -cf - var/log etc/cdi run/cdi 2>/dev/null",
}

func (c *Cluster) nodeLogs(ctx context.Context, node, dir string) error {
	var errs []error
	for _, name := range []string{"console.log", "qemu.log"} {
		errs = append(errs, copyLog(c.path("run", node, name), filepath.Join(dir, name)))
	}
	if _, err := c.NodeExec(ctx, node, "true"); err != nil {
		// The node does not answer, but its disk has its logs.
		_, diskErr := run(ctx, dir, nil, "debugfs", "-R", "rdump /var/log .", c.path("run", node, "disk.ext4"))
		return errors.Join(append(errs, err, diskErr)...)
	}
	for name, command := range nodeQuestions {
		ask, cancel := context.WithTimeout(ctx, time.Minute)
		out, err := c.NodeExec(ask, node, command)
		cancel()
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name), []byte(out), 0o644))
	}
	if _, err := run(ctx, dir, nil, "tar", "-xf", "logs.tar"); err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.Remove(filepath.Join(dir, "logs.tar")))...)
}

func copyLog(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// Status returns the state of the cluster, a line for each program of the control plane and each node.
func (c *Cluster) Status(ctx context.Context) string {
	var b strings.Builder
	for _, name := range controlPlane {
		fmt.Fprintf(&b, "%-24s %s\n", name, state(c.pid(c.path("run", "control-plane"), name)))
	}
	for i, name := range c.NodeNames() {
		ready := "Ready"
		if err := c.nodeReady(ctx, name, ""); err != nil {
			ready = err.Error()
		}
		fmt.Fprintf(&b, "%-24s %s, %s, %s\n", name, state(c.pid(c.path("run", name), "qemu")), c.nodeAddress(i), ready)
	}
	return b.String()
}

func state(pid int) string {
	if pid == 0 {
		return "not running"
	}
	return fmt.Sprintf("process %d", pid)
}
