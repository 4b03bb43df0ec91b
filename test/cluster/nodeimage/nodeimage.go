// SPDX-License-Identifier: Apache-2.0

// Package nodeimage makes the files that a node boots from: for each kernel an initrd that loads its modules and finds
// the disk, and for all kernels one root disk. The disk has busybox and systemd to choose from as init, the container
// runtime, the kubelet, and every container image that must be there from the start. No loop mount or installer is
// needed. Package cluster copies the disk for each node and starts QEMU on it.
package nodeimage

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed files
var files embed.FS

//go:embed disk.go initrd.go kernel.go nodeimage.go systemd.go
var source embed.FS

// Spec is the content of the disk and the place of the result.
type Spec struct {
	Programs string   // directory with kubernetes, containerd, containerd-shim-runc-v2, ctr, runc, cni/
	Systemd  string   // unpacked SystemdPackages and what they depend on
	Busybox  string   // static binary
	Images   []string // archives to preload
	Out      string   // directory for root.ext4
	FreeMiB  int      // room left on the disk
}

// Build writes the disk. Out/work is scratch and removed at the end.
func Build(ctx context.Context, s Spec) error {
	work := filepath.Join(s.Out, "work")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("clear %s: %w", work, err)
	}
	root := filepath.Join(work, "root")
	if err := makeRoot(ctx, s, root); err != nil {
		return err
	}
	if err := preload(ctx, s, root, filepath.Join(work, "preload")); err != nil {
		return err
	}
	if err := makeDisk(ctx, root, filepath.Join(s.Out, "root.ext4"), s.FreeMiB); err != nil {
		return err
	}
	return os.RemoveAll(work)
}

// Fingerprint returns the content of this package, its Go code included: an image is out of date if it differs.
func Fingerprint() ([]byte, error) {
	var all bytes.Buffer
	for _, tree := range []embed.FS{files, source} {
		err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := tree.ReadFile(name)
			fmt.Fprintf(&all, "%s %d %s", name, len(data), data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}

var scripts = []string{"init", "setup", "daemon", "keep", "service"} // in /sbin

func makeRoot(ctx context.Context, s Spec, root string) error {
	for _, d := range strings.Fields("usr/bin usr/sbin usr/lib usr/lib64") { // packages use /usr/bin or /bin: make them the same
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
		if err := os.Symlink(d, filepath.Join(root, filepath.Base(d))); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
	}
	for _, d := range strings.Fields("proc sys dev run tmp share mnt root var/lib var/log/pods opt/cni/bin opt/nri/plugins " +
		"usr/local/bin etc/containerd/conf.d etc/cni/net.d etc/kubernetes etc/cdi etc/nri/conf.d") {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
	}
	if err := os.Symlink("/run", filepath.Join(root, "var/run")); err != nil {
		return fmt.Errorf("node root: %w", err)
	}
	if err := copyFile(s.Busybox, filepath.Join(root, "bin/busybox"), 0o755); err != nil {
		return err
	}
	applets, err := Applets(ctx, s.Busybox)
	if err != nil {
		return err
	}
	for _, a := range applets {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", a)); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
	}
	programs := map[string]string{"kubernetes": "usr/local/bin/kubelet"}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"} {
		programs[p] = "usr/local/bin/" + p
	}
	for _, p := range []string{"bridge", "loopback", "host-local"} {
		programs["cni/"+p] = "opt/cni/bin/" + p
	}
	for from, to := range programs {
		if err := copyFile(filepath.Join(s.Programs, from), filepath.Join(root, to), 0o755); err != nil {
			return err
		}
	}
	embedded := map[string]string{"containerd.toml": "etc/containerd/config.toml"}
	for _, script := range scripts {
		embedded[script] = "sbin/" + script
	}
	for from, to := range embedded {
		data, err := files.ReadFile("files/" + from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, to), data, 0o755); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:100:100::/:/bin/false\n",
		"group":  "root:x:0:\nmessagebus:x:100:\n", "resolv.conf": "",
		"os-release": "ID=cpumem-test\nPRETTY_NAME=\"cpumem test node\"\n",
		"machine-id": "5f0c1a6e9d3b4c27a8e1f2b3c4d5e6f7\n",
	} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("node root: %w", err)
		}
	}
	return addSystemd(s.Systemd, root)
}

// Applets returns the names that busybox answers to, without its own.
func Applets(ctx context.Context, busybox string) ([]string, error) {
	out, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list: %w", busybox, err)
	}
	var applets []string
	for _, a := range strings.Fields(string(out)) {
		if a != "busybox" {
			applets = append(applets, a)
		}
	}
	return applets, nil
}
