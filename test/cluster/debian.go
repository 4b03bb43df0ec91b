// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/nodeimage"
)

var kernelPackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)

// unpackKernel gets Debian's kernel without installing it: the host's /boot stays as it is.
func (c *Cluster) unpackKernel(ctx context.Context) error {
	if found, _ := filepath.Glob(c.path("kernel", "lib/modules/*/modules.dep")); len(found) == 1 {
		return nil
	}
	return c.unpack(ctx, "kernel", func(tmp string) error {
		out, err := run(ctx, tmp, nil, "apt-cache", "depends", "linux-image-amd64")
		if err != nil {
			return err
		}
		match := kernelPackage.FindStringSubmatch(out)
		if match == nil {
			return fmt.Errorf("linux-image-amd64 depends on no kernel:\n%s", out)
		}
		c.logf("downloading %s", match[1])
		_, err = run(ctx, tmp, nil, "apt-get", "download", "-qq", match[1])
		return err
	}, func(unpacked string) error {
		modules, err := filepath.Glob(filepath.Join(unpacked, "lib/modules/*"))
		if err != nil || len(modules) != 1 {
			return fmt.Errorf("want one release in lib/modules, found %v", modules)
		}
		_, err = run(ctx, "", nil, "depmod", "-b", unpacked, filepath.Base(modules[0]))
		return err
	})
}

// unpackSystemd gets systemd, the system bus and all they depend on, of the host's release but without installing them:
// apt is told of a machine that has no package yet.
func (c *Cluster) unpackSystemd(ctx context.Context) error {
	if _, err := os.Stat(c.path("systemd")); err == nil {
		return nil
	}
	return c.unpack(ctx, "systemd", func(tmp string) error {
		c.logf("downloading systemd")
		if err := os.Mkdir(filepath.Join(tmp, "partial"), 0o755); err != nil {
			return err
		}
		args := []string{"-qq", "-y", "--no-install-recommends", "--download-only"}
		for _, o := range []string{
			"Dir::State::status=/dev/null", "Dir::Cache::archives=" + tmp, "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=",
			"Debug::NoLocking=true", "APT::Sandbox::User=root",
		} {
			args = append(args, "-o", o)
		}
		_, err := run(ctx, tmp, nil, "apt-get", append(append(args, "install"), nodeimage.SystemdPackages...)...)
		return err
	}, nil)
}

// unpack makes dir/name of the Debian packages that get puts into a scratch directory; finish, if there is one, is for
// what their installation would have done.
func (c *Cluster) unpack(ctx context.Context, name string, get, finish func(dir string) error) error {
	tmp := c.path(name + ".part")
	fresh := func() error {
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			return err
		}
		return get(tmp)
	}
	if fresh() != nil { // most often the package lists are old or were never fetched
		if err := apt(ctx, "update", "-qq"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := fresh(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) == 0 {
		return fmt.Errorf("%s: no package in %s", name, tmp)
	}
	unpacked := filepath.Join(tmp, "unpacked")
	for _, deb := range debs {
		if _, err := run(ctx, "", nil, "dpkg-deb", "-x", deb, unpacked); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if finish != nil {
		if err := finish(unpacked); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := os.RemoveAll(c.path(name)); err != nil {
		return err
	}
	if err := os.Rename(unpacked, c.path(name)); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}
