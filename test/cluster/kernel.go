// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// The kernels a node can boot.
const (
	KernelStable    = "stable"    // of this machine's Debian release
	KernelBackports = "backports" // of the backports of that release
)

var kernelNames = []string{KernelStable, KernelBackports}

var kernelPackage = regexp.MustCompile(`(?m)^\s*Depends: (linux-image-\S+)$`)

// kernelDir is where a kernel's package is unpacked.
func (c *Cluster) kernelDir(kernel string) string { return c.path("kernel-" + kernel) }

// unpackKernel downloads and unpacks a kernel of Debian. Nothing is installed: the host's /boot stays as it is.
func (c *Cluster) unpackKernel(ctx context.Context, kernel string) error {
	if found, _ := filepath.Glob(filepath.Join(c.kernelDir(kernel), "lib/modules/*/modules.dep")); len(found) == 1 {
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
		c.logf("downloading %s", match[1])
		_, err = run(ctx, dir, nil, "apt-get", append(options, "download", "-qq", match[1])...)
		return err
	}
	get := c.updated(ctx, func(dir string) error { return download(dir, nil) })
	if kernel == KernelBackports {
		get = func(dir string) error {
			options, err := useBackports(ctx, filepath.Join(dir, "apt"))
			if err != nil {
				return err
			}
			return download(dir, options)
		}
	}
	return c.unpack(ctx, filepath.Base(c.kernelDir(kernel)), get, func(unpacked string) error {
		modules, err := filepath.Glob(filepath.Join(unpacked, "lib/modules/*"))
		if err != nil || len(modules) != 1 {
			return fmt.Errorf("want one release in lib/modules, found %v", modules)
		}
		_, err = run(ctx, "", nil, "depmod", "-b", unpacked, filepath.Base(modules[0]))
		return err
	})
}

// useBackports fetches the package lists of this release's backports into dir, which must not exist, and returns the options with
// which apt uses only these lists. Mirror, keyring and credentials come from the host's configuration, which stays as it is.
func useBackports(ctx context.Context, dir string) ([]string, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return nil, err
	}
	source, err := backportsSource(os.DirFS("/etc/apt"), codename(string(release)))
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
	options = options[:len(options):len(options)] // download appends twice: each append copies
	if _, err := run(ctx, "", nil, "apt-get", append(options, "-o", "APT::Update::Error-Mode=any", "update", "-qq")...); err != nil {
		return nil, fmt.Errorf("the mirror gives no backports of this release; use another mirror or no node with the kernel %q: %w\n%s",
			KernelBackports, err, source.text)
	}
	return options, nil
}
