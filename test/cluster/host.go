// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
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

	"golang.org/x/sys/unix"
)

// packages are the Debian packages that the cluster needs beyond a minimal installation.
var packages = []string{
	"qemu-system-x86", "busybox-static", "e2fsprogs", "kmod", "xz-utils", "iproute2", // to run nodes
	"gcc", "libc6-dev", "libseccomp-dev", "pkg-config", // to build runc
	"buildah", // for the images under test
}

// host describes the machine, as far as the cluster depends on it.
type host struct {
	uid       int
	arch      string // as Go calls it
	goProgram error  // nil: go is in PATH
	tun       error  // nil: /dev/net/tun is there
	release   string // content of /etc/os-release
	memoryMiB uint64 // available
	diskMiB   uint64 // free in the cluster's directory
	built     bool   // the cluster's programs are there
}

// Needed, in MiB: the demo's node has 4 GiB; the programs and Go's build cache take most of the disk.
const (
	neededMemory = 5 << 10
	neededDisk   = 10 << 10
	builtDisk    = 4 << 10 // once the programs are built
)

// lacking returns all that the machine lacks, each with what to do.
func (h host) lacking() []error {
	var all []error
	lacks := func(is bool, format string, args ...any) {
		if is {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	disk := uint64(neededDisk)
	if h.built {
		disk = builtDisk
	}
	lacks(h.uid != 0, "user id %d: the cluster makes network namespaces and mounts, run it as root", h.uid)
	lacks(!slices.Contains(strings.Split(h.release, "\n"), "ID=debian"), "this is no Debian (/etc/os-release): "+
		"the nodes' kernel and tools come as Debian packages, run it on Debian 12 or 13, or in a privileged container of one")
	lacks(h.arch != "amd64", "this machine is %s: the nodes' kernel and qemu are for amd64, run it there", h.arch)
	lacks(h.goProgram != nil, "no `go` in PATH (%w): install the Go version that go.mod names", h.goProgram)
	lacks(h.tun != nil, "nodes need tap interfaces (%w): load the module tun, or give the container /dev/net/tun", h.tun)
	lacks(h.memoryMiB < neededMemory, "%d MiB of memory are available, %d are needed: end other programs, or take a larger machine",
		h.memoryMiB, neededMemory)
	lacks(h.diskMiB < disk, "%d MiB are free on the disk, %d are needed: make room, or set CPUMEM_CLUSTER_DIR to a larger disk",
		h.diskMiB, disk)
	return all
}

// CheckHost returns an error that has all that this machine lacks for a cluster in dir. Missing packages are no error:
// Up installs them.
func CheckHost(dir string) error {
	h := host{uid: os.Geteuid(), arch: runtime.GOARCH}
	_, h.goProgram = exec.LookPath("go")
	_, h.tun = os.Stat("/dev/net/tun")
	release, err := os.ReadFile("/etc/os-release")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	h.release = string(release)
	if h.memoryMiB, err = availableMemory(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	h.diskMiB = disk.Bavail * uint64(disk.Bsize) >> 20
	_, err = os.Stat(filepath.Join(dir, "bin", "kubelet"))
	h.built = err == nil
	return errors.Join(h.lacking()...)
}

// availableMemory returns the kernel's estimate of the memory that programs can get, in MiB.
func availableMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "MemAvailable:"); is {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib >> 10, err
		}
	}
	return 0, errors.New("/proc/meminfo has no MemAvailable")
}

// prepareHost checks the machine and installs missing packages.
func (c *Cluster) prepareHost(ctx context.Context) error {
	if err := CheckHost(c.dir); err != nil {
		return err
	}
	missing, err := missingPackages(ctx)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		return nil
	}
	c.logf("installing Debian packages: %s", strings.Join(missing, " "))
	if err := apt(ctx, "update", "-qq"); err != nil {
		return err
	}
	if err := apt(ctx, append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)...); err != nil {
		return fmt.Errorf("packages %s are missing and could not be installed: %w", strings.Join(missing, " "), err)
	}
	return nil
}

func missingPackages(ctx context.Context) ([]string, error) {
	var missing []string
	for _, p := range packages {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, p)
		}
	}
	return missing, ctx.Err()
}

func apt(ctx context.Context, args ...string) error {
	_, err := run(ctx, "", []string{"DEBIAN_FRONTEND=noninteractive"},
		"apt-get", append([]string{"-o", "DPkg::Lock::Timeout=300"}, args...)...)
	return err
}
