// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/nodeimage"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/ociarchive"
)

// Images that every node has; pods must not pull them.
const (
	ProbeImage = "lab.local/probe:1"
	// BusyboxImage has the name that containerd gives the examples' busybox:1.
	BusyboxImage = "docker.io/library/busybox:1"
	// PCIDriverImage is a second DRA driver.
	PCIDriverImage = "lab.local/pcidriver:1"
	pauseImage     = "lab.local/pause:1"
)

const busybox = "/bin/busybox"

// buildImage makes the disk and, for each kernel, the initrd that nodes boot from. Parts with unchanged inputs are kept.
func (c *Cluster) buildImage(ctx context.Context) error {
	if err := os.MkdirAll(c.path("image", "archives"), 0o755); err != nil {
		return err
	}
	archives, err := c.writeArchives(ctx)
	if err != nil {
		return err
	}
	archives = append(archives, c.opts.Images...)
	inputs, err := filepath.Glob(c.path("bin", ".*"))
	if err != nil {
		return err
	}
	disk := sha256.New()
	fmt.Fprintln(disk, c.opts.FreeMiB)
	for _, a := range archives {
		if err := fileKey(disk, a); err != nil {
			return fmt.Errorf("image archive: %w", err)
		}
	}
	err = renew(c.path("image", ".key"), disk, append(inputs, c.path("systemd"), busybox), func() error {
		c.logf("making the node image with %d container images", len(archives))
		return nodeimage.Build(ctx, nodeimage.Spec{
			Programs: c.path("bin"), Systemd: c.path("systemd"), Busybox: busybox,
			Images: archives, Out: c.path("image"), FreeMiB: c.opts.FreeMiB,
		})
	})
	if err != nil {
		return fmt.Errorf("node image: %w", err)
	}
	for _, kernel := range c.opts.kernels() {
		dir, out := c.kernelDir(kernel), c.path("image", kernel)
		err := renew(c.path("image", "."+kernel), sha256.New(), []string{filepath.Join(dir, "boot"), busybox}, func() error {
			return nodeimage.BuildKernel(ctx, dir, busybox, out)
		})
		if err != nil {
			return fmt.Errorf("kernel %q: %w", kernel, err)
		}
	}
	return nil
}

// renew runs build unless the file stamp has the hash of the inputs. To h it adds the sizes and times of inputs and the
// fingerprint of package nodeimage.
func renew(stamp string, h hash.Hash, inputs []string, build func() error) error {
	fingerprint, err := nodeimage.Fingerprint()
	if err != nil {
		return err
	}
	h.Write(fingerprint)
	for _, input := range inputs {
		info, err := os.Stat(input)
		if err != nil {
			return err
		}
		fmt.Fprintln(h, input, info.Size(), info.ModTime().UnixNano())
	}
	key := fmt.Appendf(nil, "%x", h.Sum(nil))
	if old, err := os.ReadFile(stamp); err == nil && bytes.Equal(old, key) {
		return nil
	}
	if err := os.RemoveAll(stamp); err != nil {
		return err
	}
	if err := build(); err != nil {
		return err
	}
	return os.WriteFile(stamp, key, 0o644)
}

func (c *Cluster) writeArchives(ctx context.Context) ([]string, error) {
	applets, err := nodeimage.Applets(ctx, busybox)
	if err != nil {
		return nil, err
	}
	images := map[string]struct {
		image ociarchive.Image
		from  string
	}{
		"pause.tar": {ociarchive.Image{Reference: pauseImage, Entrypoint: []string{"/pause"},
			Files: []ociarchive.File{{Path: "/pause"}}}, c.path("bin", "pause")},
		"probe.tar": {ociarchive.Image{Reference: ProbeImage, Entrypoint: []string{"/probe"},
			Files: []ociarchive.File{{Path: "/probe"}}}, c.path("bin", "probe")},
		"pcidriver.tar": {ociarchive.Image{Reference: PCIDriverImage, Entrypoint: []string{"/pcidriver"},
			Files: []ociarchive.File{{Path: "/pcidriver"}}}, c.path("bin", "pcidriver")},
		"busybox.tar": {ociarchive.Image{Reference: BusyboxImage,
			Files: []ociarchive.File{{Path: "/bin/busybox", Links: applets}}}, busybox},
	}
	var archives []string
	for _, name := range slices.Sorted(maps.Keys(images)) {
		img := images[name]
		data, err := os.ReadFile(img.from)
		if err != nil {
			return nil, err
		}
		img.image.Files[0].Data = data
		var buf bytes.Buffer
		if err := ociarchive.Write(&buf, img.image); err != nil {
			return nil, err
		}
		file := c.path("image", "archives", name)
		if err := os.WriteFile(file, buf.Bytes(), 0o644); err != nil {
			return nil, err
		}
		archives = append(archives, file)
	}
	return archives, nil
}
