// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// packages are the Debian packages that the cluster needs beyond a minimal installation.
var packages = []string{
	"qemu-system-x86", "busybox-static", "e2fsprogs", "kmod", "xz-utils", "iproute2", // to run nodes
	"gcc", "libc6-dev", "libseccomp-dev", "pkg-config", // to build runc
	"buildah", // for the images under test
}

// prepareHost installs missing packages. It returns an error if this process is not root, or go or /dev/net/tun is missing.
func (c *Cluster) prepareHost(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user id %d: the cluster makes network namespaces and mounts, run it as root", os.Geteuid())
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("no `go` in PATH (%w): install the Go version that go.mod names", err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("nodes need tap interfaces (%w): load the module tun, or give the container /dev/net/tun", err)
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
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || !slices.Contains(strings.Split(string(release), "\n"), "ID=debian") {
		return nil, fmt.Errorf("this is no Debian (/etc/os-release): the nodes' kernel and tools come as Debian packages, " +
			"run it on Debian 12 or in a privileged container of it")
	}
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
