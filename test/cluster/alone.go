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

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/nodeimage"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/qemu"
)

// UnpackKernel downloads and unpacks a kernel, unless it is there, and returns its release ("6.12.95+deb12-amd64").
func (c *Cluster) UnpackKernel(ctx context.Context, kernel string) (release string, err error) {
	if err := c.prepareHost(ctx); err != nil {
		return "", err
	}
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := c.unpackKernel(ctx, kernel); err != nil {
		return "", err
	}
	return nodeimage.KernelRelease(c.kernelDir(kernel))
}

// BuildProgram builds a program of the module in directory module for BootProgram. remove removes it.
func BuildProgram(ctx context.Context, module, pkg string) (program string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	program = filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, pkg)
	cmd.Dir, cmd.Env, cmd.Stderr = module, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off"), os.Stderr
	if err := cmd.Run(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build %s of %s: %w", pkg, module, err)
	}
	return program, remove, nil
}

// BootProgram boots a machine with an unpacked kernel. Its only process is a static program, which gets words on the kernel's
// command line and switches the machine off. BootProgram returns what the machine wrote to its console.
func (c *Cluster) BootProgram(ctx context.Context, kernel string, m qemu.Machine, program, words string) (string, error) {
	release, err := nodeimage.KernelRelease(c.kernelDir(kernel))
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	var initrd bytes.Buffer
	if err := nodeimage.WriteProgram(&initrd, data); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(c.dir, "initrd-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(initrd.Bytes())
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", qemu.Diskless(m, qemu.Node{
		Accel: c.opts.Accel, Kernel: filepath.Join(c.kernelDir(kernel), "boot", "vmlinuz-"+release), Initrd: file.Name(),
		Append: "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off nokaslr tsc=reliable audit=0 " + words,
	})...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("machine with kernel %s: %w: %s", release, err, problems.String())
	}
	return string(out), nil
}
