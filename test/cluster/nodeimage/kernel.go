// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// nodeModules are all modules that a node needs. The initrd loads them, so that the disk is the same for every kernel.
// crc32c_generic is named because ext4 asks for it by an alias, which modules.dep does not know.
var nodeModules = []string{
	"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", // the disk
	"virtio_net", "virtio-rng", "overlay", "veth", "bridge", "9pnet_virtio", "9p",
}

// notInAll are the node's modules that a kernel may lack: Linux 7 computes CRC32c without a module.
var notInAll = map[string]bool{"crc32c_generic": true}

// BuildKernel writes vmlinuz and initrd of an unpacked kernel package, which has a modules.dep, to the directory out.
func BuildKernel(ctx context.Context, kernel, busybox, out string) error {
	release, err := KernelRelease(kernel)
	if err != nil {
		return err
	}
	entries, err := initrd(ctx, filepath.Join(kernel, "lib/modules", release), busybox)
	if err != nil {
		return fmt.Errorf("initrd of kernel %s: %w", release, err)
	}
	var archive bytes.Buffer
	if err := writeCPIO(&archive, entries); err != nil {
		return fmt.Errorf("initrd of kernel %s: %w", release, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "initrd"), archive.Bytes(), 0o644); err != nil {
		return err
	}
	return copyFile(filepath.Join(kernel, "boot", "vmlinuz-"+release), filepath.Join(out, "vmlinuz"), 0o644)
}

func initrd(ctx context.Context, modules, busybox string) ([]entry, error) {
	var entries []entry
	for _, d := range []string{"bin", "dev", "proc", "root", "modules"} {
		entries = append(entries, entry{name: d, mode: modeDir})
	}
	script, err := files.ReadFile("files/initrd-init")
	if err != nil {
		return nil, err
	}
	shell, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	entries = append(entries, entry{"init", modeFile, script}, entry{"bin/busybox", modeFile, shell})
	order, err := wantedModules(modules)
	if err != nil {
		return nil, err
	}
	var names bytes.Buffer
	for _, file := range order {
		data, err := readModule(ctx, filepath.Join(modules, file))
		if err != nil {
			return nil, err
		}
		name := moduleName(file) + ".ko"
		entries = append(entries, entry{"modules/" + name, modeFile, data})
		fmt.Fprintln(&names, name)
	}
	return append(entries, entry{"modules/order", modeFile, names.Bytes()}), nil
}

// wantedModules returns the files below dir of nodeModules and of the modules that they need, in the order to load them.
func wantedModules(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	builtin := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		builtin[moduleName(strings.TrimSpace(line))] = true
	}
	dep, err := os.Open(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	defer dep.Close()
	return moduleOrder(dep, nodeModules, builtin)
}

// readModule returns a module uncompressed: packages of newer kernels compress modules, and busybox's insmod cannot read that.
func readModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	data, err := exec.CommandContext(ctx, "xz", "-dc", file).Output()
	if err != nil {
		return nil, fmt.Errorf("xz -dc %s: %w", file, err)
	}
	return data, nil
}

// KernelRelease returns the release of the one kernel in the unpacked package.
func KernelRelease(dir string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lib/modules/*/modules.dep"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s: want one kernel with modules.dep, found %d", dir, len(found))
	}
	return filepath.Base(filepath.Dir(found[0])), nil
}
