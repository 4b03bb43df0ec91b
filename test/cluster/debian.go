// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/nodeimage"
)

// unpackSystemd downloads and unpacks systemd, the system bus and all that they depend on, of the host's release.
// Nothing is installed. apt sees a machine without packages, so that it downloads every dependency.
func (c *Cluster) unpackSystemd(ctx context.Context) error {
	if _, err := os.Stat(c.path("systemd")); err == nil {
		return nil
	}
	return c.unpack(ctx, "systemd", c.updated(ctx, func(tmp string) error {
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
	}), nil)
}

// updated returns get with a second try after an update of the package lists, which are often old or missing.
func (c *Cluster) updated(ctx context.Context, get func(dir string) error) func(dir string) error {
	return func(dir string) error {
		if get(dir) == nil {
			return nil
		}
		if err := apt(ctx, "update", "-qq"); err != nil {
			return err
		}
		if err := remake(dir); err != nil {
			return err
		}
		return get(dir)
	}
}

// remake makes dir and empties it.
func remake(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// unpack fills the cluster's directory name from the Debian packages that get puts into a scratch directory. finish, if
// not nil, does what an installation would have done.
func (c *Cluster) unpack(ctx context.Context, name string, get, finish func(dir string) error) error {
	tmp := c.path(name + ".part")
	if err := remake(tmp); err != nil {
		return err
	}
	if err := get(tmp); err != nil {
		return fmt.Errorf("%s: %w", name, err)
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
