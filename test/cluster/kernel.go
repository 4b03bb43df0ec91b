// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The kernels a node can boot.
const (
	KernelStable    = "stable"    // of this machine's Debian release
	KernelBackports = "backports" // of the backports of that release
	KernelNewest    = "newest"    // of the backports of newestRelease
)

// newestRelease is the Debian release with the newest kernels in its backports.
const newestRelease = "trixie"

var kernelNames = []string{KernelStable, KernelBackports, KernelNewest}

var (
	kernelPackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)
	// kernelParts are the packages that newer kernels are divided into.
	kernelParts = regexp.MustCompile(`(?m)^\s*Depends: (linux-(?:base|binary|modules)-\S+)$`)
)

// kernelDir is where a kernel's package is unpacked.
func (c *Cluster) kernelDir(kernel string) string { return c.path("kernel-" + kernel) }

// unpackKernel downloads and unpacks a kernel of Debian. Nothing is installed: the host's /boot stays as it is.
func (c *Cluster) unpackKernel(ctx context.Context, kernel string) error {
	if found, _ := filepath.Glob(filepath.Join(c.kernelDir(kernel), "lib/modules/*/modules.builtin")); len(found) == 1 {
		return nil
	}
	download := func(dir string, options []string) error {
		out, err := run(ctx, dir, nil, "apt-cache", append(options, "depends", "linux-image-amd64")...)
		if err != nil {
			return err
		}
		match := kernelPackage.FindStringSubmatch(out)
		if match == nil {
			return fmt.Errorf("linux-image-amd64 depends on no kernel:\n%s", out)
		}
		packages := []string{match[1]}
		if out, err = run(ctx, dir, nil, "apt-cache", append(options, "depends", match[1])...); err != nil {
			return err
		}
		for _, part := range kernelParts.FindAllStringSubmatch(out, -1) {
			packages = append(packages, part[1])
		}
		c.logf("downloading %s", strings.Join(packages, ", "))
		_, err = run(ctx, dir, nil, "apt-get", append(append(options, "download", "-qq"), packages...)...)
		return err
	}
	get := c.updated(ctx, func(dir string) error { return download(dir, nil) })
	if kernel != KernelStable {
		get = func(dir string) error {
			options, err := useBackports(ctx, kernel, filepath.Join(dir, "apt"))
			if err != nil {
				return err
			}
			return download(dir, options)
		}
	}
	return c.unpack(ctx, filepath.Base(c.kernelDir(kernel)), get, func(unpacked string) error {
		if err := joinParts(unpacked); err != nil {
			return err
		}
		modules, err := filepath.Glob(filepath.Join(unpacked, "lib/modules/*"))
		if err != nil || len(modules) != 1 {
			return fmt.Errorf("want one release in lib/modules, found %v", modules)
		}
		_, err = run(ctx, "", nil, "depmod", "-b", unpacked, filepath.Base(modules[0]))
		return err
	})
}

// joinParts moves the files of a kernel that comes in several packages to where a single package has them.
func joinParts(unpacked string) error {
	usr := filepath.Join(unpacked, "usr/lib/modules")
	if _, err := os.Stat(usr); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	modules, boot := filepath.Join(unpacked, "lib/modules"), filepath.Join(unpacked, "boot")
	for _, dir := range []string{filepath.Dir(modules), boot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Rename(usr, modules); err != nil {
		return err
	}
	kernels, err := filepath.Glob(filepath.Join(modules, "*/vmlinuz"))
	if err != nil {
		return err
	}
	for _, k := range kernels {
		if err := os.Rename(k, filepath.Join(boot, "vmlinuz-"+filepath.Base(filepath.Dir(k)))); err != nil {
			return err
		}
	}
	return nil
}

// useBackports fetches the package lists of the kernel's backports into dir, which must not exist, and returns the options with
// which apt uses only these lists. Mirror, keyring and credentials come from the host's configuration, which stays as it is.
func useBackports(ctx context.Context, kernel, dir string) ([]string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil, err
	}
	own := codename(string(release))
	of := own
	if kernel == KernelNewest {
		of = newestRelease
	}
	source, err := backportsSource(os.DirFS("/etc/apt"), own, of+"-backports")
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"sources", "lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "sources", source.file), []byte(source.text), 0o644); err != nil {
		return nil, err
	}
	var options []string
	for _, o := range []string{
		"Dir::Etc::sourcelist=/dev/null", "Dir::Etc::sourceparts=" + dir + "/sources", "Dir::Etc::preferencesparts=/dev/null",
		"Dir::Etc::preferences=/dev/null", "Dir::State::lists=" + dir + "/lists", "Dir::State::status=/dev/null",
		"Dir::Cache=" + dir, "APT::Sandbox::User=root",
	} {
		options = append(options, "-o", o)
	}
	options = options[:len(options):len(options)] // download appends several times: each append copies
	if _, err := run(ctx, "", nil, "apt-get", append(options, "-o", "APT::Update::Error-Mode=any", "update", "-qq")...); err != nil {
		return nil, fmt.Errorf("the mirror gives no %s-backports; use another mirror or no machine with the kernel %q: %w\n%s",
			of, kernel, err, source.text)
	}
	return options, nil
}
