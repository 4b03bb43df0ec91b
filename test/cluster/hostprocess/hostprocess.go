// SPDX-License-Identifier: Apache-2.0

// Package hostprocess runs the probe as a process of a node, beside the kubelet and outside of all pods: programs that
// watch containers do not know it. The process has a cgroup of its own; on a node with systemd it is a transient unit.
// Package isolation and the end-to-end cases call it.
package hostprocess

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster"
)

// Process is a process that Start started. Its name is unique on its node.
type Process struct {
	cluster    *cluster.Cluster
	node, name string
}

const program = "probe"

// Start starts the probe under the name, with its actions as args, and returns when it runs.
func Start(ctx context.Context, c *cluster.Cluster, node, name string, args ...string) (*Process, error) {
	p := &Process{cluster: c, node: node, name: name}
	if err := share(c, node); err != nil {
		return nil, err
	}
	if _, err := c.NodeExec(ctx, node, p.startScript(args)); err != nil {
		return nil, fmt.Errorf("host process %s: %w", name, err)
	}
	return p, nil
}

// share copies the program to the node's /share.
func share(c *cluster.Cluster, node string) error {
	data, err := os.ReadFile(c.Program(program))
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(c.Kubeconfig()), node, "share", program)
	if old, err := os.ReadFile(file); err == nil && string(old) == string(data) {
		return nil // do not write a file that may be running
	}
	return os.WriteFile(file, data, 0o755)
}

func (p *Process) output() string { return "/tmp/" + p.name + ".out" }

func (p *Process) systemd() bool {
	return p.cluster.CgroupDriver(p.node) == cluster.CgroupDriverSystemd
}

// startScript returns the node's shell script that starts the process.
func (p *Process) startScript(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	command := "/share/" + program + " " + strings.Join(words, " ")
	if p.systemd() {
		return fmt.Sprintf("rm -f %[1]s; systemd-run --quiet --collect --unit=%[2]s -p DefaultDependencies=no "+
			"-p StandardOutput=file:%[1]s -p StandardError=file:%[1]s %[3]s",
			p.output(), p.name, command)
	}
	// The shell enters the cgroup and then becomes the process, so that all of the process starts there.
	return fmt.Sprintf("mkdir %[1]s && { setsid sh -c 'echo $$ >%[1]s/cgroup.procs && exec \"$@\"' sh %[3]s </dev/null >%[2]s 2>&1 & } && "+
		"for i in 1 2 3 4 5 6 7 8 9 10; do [ -z \"$(cat %[1]s/cgroup.procs)\" ] || exit 0; usleep 200000; done; cat %[2]s; exit 1",
		p.cgroup(), p.output(), command)
}

func (p *Process) cgroup() string { return "/sys/fs/cgroup/" + p.name }

// Output returns what the process has printed so far.
func (p *Process) Output(ctx context.Context) (string, error) {
	return p.cluster.NodeExec(ctx, p.node, "cat "+p.output())
}

// Stop ends the process, waits until it has ended, and returns its output.
func (p *Process) Stop(ctx context.Context) (string, error) {
	script := "systemctl stop " + p.name
	if !p.systemd() {
		script = fmt.Sprintf("kill $(cat %[1]s/cgroup.procs); until rmdir %[1]s; do usleep 100000; done 2>/dev/null", p.cgroup())
	}
	if out, err := p.cluster.NodeExec(ctx, p.node, script); err != nil {
		return out, fmt.Errorf("end host process %s: %w", p.name, err)
	}
	return p.Output(ctx)
}
