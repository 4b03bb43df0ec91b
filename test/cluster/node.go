// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/nodeimage"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

// startMachine boots node i; fresh gives it a new disk.
func (c *Cluster) startMachine(i int, m qemu.Machine, fresh bool) error {
	name := c.NodeNames()[i]
	dir := c.path("run", name)
	disk := filepath.Join(dir, "disk.ext4")
	if fresh {
		cp := exec.Command("cp", "--sparse=always", "--reflink=auto", c.path("image", "root.ext4"), disk)
		if out, err := cp.CombinedOutput(); err != nil {
			return fmt.Errorf("disk of %s: %w: %s", name, err, out)
		}
	}
	words := []string{
		"console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off nokaslr tsc=reliable audit=0",
		m.KernelArgs(), c.opts.KernelArgs,
		"node.name=" + name, "node.address=" + c.nodeAddress(i).String(),
		"node.gateway=" + c.apiAddress().String(), "node.pods=" + c.podRange(i),
	}
	if c.CgroupDriver(name) == CgroupDriverSystemd {
		words = append(words, "node.init="+nodeimage.SystemdInit)
	}
	args := qemu.Args(m, qemu.Node{
		Index: i, Accel: c.opts.Accel, InstructionClock: c.opts.InstructionClock, Tap: fmt.Sprintf("tap%d", i),
		Kernel: c.path("image", c.Kernel(name), "vmlinuz"), Initrd: c.path("image", c.Kernel(name), "initrd"),
		Append: strings.Join(words, " "),
		Disk:   disk, Share: filepath.Join(dir, "share"),
		Console: filepath.Join(dir, "console.log"), Monitor: filepath.Join(dir, "monitor"),
	})
	return c.start(dir, "qemu", append([]string{"qemu-system-x86_64"}, args...)...)
}

// awaitNode waits until node i is Ready. Emulated machines sometimes hang in their first seconds, so a node that is not
// Ready in time is started once more. Warnings say so, because the cause may be a fault in the tested software.
func (c *Cluster) awaitNode(ctx context.Context, i int) error {
	name := c.NodeNames()[i]
	first := c.awaitReady(ctx, name, c.opts.Ready)
	if first == nil || ctx.Err() != nil {
		return first
	}
	c.logf("WARNING: %s is NOT READY: %v", name, first)
	c.logf("WARNING: RESTARTING %s, once; what the first try said is in run/%s/first-try", name, name)
	dir := c.path("run", name)
	if err := os.MkdirAll(filepath.Join(dir, "first-try"), 0o755); err != nil {
		return err
	}
	if err := c.nodeLogs(ctx, name, filepath.Join(dir, "first-try")); err != nil {
		c.logf("WARNING: logs of the first try: %v", err)
	}
	if err := c.stop(ctx, dir, "qemu"); err != nil {
		return err
	}
	_, err := c.request(ctx, http.MethodDelete, "/api/v1/nodes/"+name)
	if err != nil {
		c.logf("node object of %s: %v", name, err) // most often there is none
	}
	if err := c.startMachine(i, c.Machine(name), true); err != nil {
		return err
	}
	if err := c.awaitReady(ctx, name, c.opts.Ready); err != nil {
		return fmt.Errorf("%s did not become Ready in two tries: %w", name, err)
	}
	c.logf("WARNING: %s needed two tries", name)
	return nil
}

func (c *Cluster) awaitReady(ctx context.Context, name string, limit time.Duration) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := begin
	err := poll(ctx, 300*time.Millisecond, func() error {
		if c.pid(c.path("run", name), "qemu") == 0 {
			cancel()
			return fmt.Errorf("its machine ended: %s%s", c.logTail(name, "qemu.log"), c.logTail(name, "console.log"))
		}
		if time.Since(said) > 20*time.Second {
			said = time.Now()
			c.logf("waiting for %s", name)
		}
		return c.nodeReady(ctx, name, "")
	})
	if err != nil {
		return err
	}
	c.logf("%s Ready", name)
	return nil
}

// nodeReady returns nil if the API server reports the node Ready; with a boot id, if this report is from that boot.
func (c *Cluster) nodeReady(ctx context.Context, name, boot string) error {
	data, err := c.get(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
			NodeInfo   struct{ BootID string }
		}
	}
	if err := json.Unmarshal(data, &node); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if seen := node.Status.NodeInfo.BootID; boot != "" && seen != boot {
		return fmt.Errorf("node %s last reported from boot %s, not from %s", name, seen, boot)
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == "Ready" && cond.Status == "True" {
			return nil
		} else if cond.Type == "Ready" {
			return fmt.Errorf("node %s is not Ready: %s", name, cond.Message)
		}
	}
	return fmt.Errorf("node %s has no condition Ready yet", name)
}

// StopNode switches a node off, as if its plug was pulled. The disk stays.
func (c *Cluster) StopNode(ctx context.Context, node string) error {
	if _, err := c.nodeIndex(node); err != nil {
		return err
	}
	// Without a journal the disk must be clean before the plug is pulled.
	if _, err := c.NodeExec(ctx, node, "sync; echo u >/proc/sysrq-trigger"); err != nil {
		c.logf("%s: file systems could not be written back: %v", node, err)
	}
	return c.stop(ctx, c.path("run", node), "qemu")
}

// StartNode boots a stopped node from its disk, on hardware that may differ from before, and returns when the API
// server reports this boot Ready.
func (c *Cluster) StartNode(ctx context.Context, node string, m qemu.Machine) error {
	i, err := c.nodeIndex(node)
	if err != nil {
		return err
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if c.pid(c.path("run", node), "qemu") != 0 {
		return fmt.Errorf("%s runs: stop it first", node)
	}
	if err := c.startMachine(i, m, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Ready)
	defer cancel()
	return poll(ctx, time.Second, func() error {
		boot, err := c.NodeExec(ctx, node, "cat /proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}
		return c.nodeReady(ctx, node, strings.TrimSpace(boot))
	})
}

// ShareDir is the directory on the host that a node sees read-only at /share.
func (c *Cluster) ShareDir(node string) string { return c.path("run", node, "share") }

// Machine is the hardware with which Up starts a node.
func (c *Cluster) Machine(node string) qemu.Machine { return c.opts.machine(node) }

// Kernel is the kernel that a node boots: KernelStable, KernelBackports or KernelNewest.
func (c *Cluster) Kernel(node string) string { return c.opts.kernel(node) }

// CgroupDriver is the cgroup driver of the node's kubelet and runtime: CgroupDriverFS or CgroupDriverSystemd.
func (c *Cluster) CgroupDriver(node string) string { return c.opts.cgroupDriver(node) }

// NodeExec runs a shell command as root on a node and returns its output, both streams. If the command ends with a code
// other than 0, the error is an *ExitError.
func (c *Cluster) NodeExec(ctx context.Context, node, command string) (string, error) {
	i, err := c.nodeIndex(node)
	if err != nil {
		return "", err
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(c.nodeAddress(i).String(), "2323"))
	if err != nil {
		return "", fmt.Errorf("shell of %s: %w", node, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	mark := "ended-" + rand.Text()
	quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
	if _, err := fmt.Fprintf(conn, "sh -c %s </dev/null 2>&1; code=$?; echo; echo %s $code; exit\n", quoted, mark); err != nil {
		return "", fmt.Errorf("shell of %s: %w", node, err)
	}
	data, err := io.ReadAll(conn)
	out, code, ended := strings.Cut(string(data), "\n"+mark+" ")
	code = strings.TrimSpace(code)
	switch {
	case ended && code == "0":
		return out, nil
	case ended:
		return out, &ExitError{Node: node, Command: command, Code: code, Output: out}
	case ctx.Err() != nil:
		return out, fmt.Errorf("%s: %s: %w", node, command, ctx.Err())
	}
	return out, fmt.Errorf("%s: %s: the connection ended before the command: %w", node, command, errors.Join(err, io.ErrUnexpectedEOF))
}

// ExitError is a command on a node that ended with a code other than 0.
type ExitError struct{ Node, Command, Code, Output string }

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: %s: exit code %s: %s", e.Node, e.Command, e.Code, tail(e.Output))
}

// LoadImage imports an image archive into a running node. This is slow under emulation (21 s for 54 MB): images known
// beforehand belong into Options.Images.
func (c *Cluster) LoadImage(ctx context.Context, node, archive string) error {
	if _, err := c.nodeIndex(node); err != nil {
		return err
	}
	name := rand.Text() + ".tar"
	shared := c.path("run", node, "share", "images", name)
	if _, err := run(ctx, "", nil, "cp", archive, shared); err != nil {
		return err
	}
	defer os.Remove(shared)
	_, err := c.NodeExec(ctx, node, "ctr -n k8s.io images import --local --label io.cri-containerd.image=managed /share/images/"+name)
	return err
}
