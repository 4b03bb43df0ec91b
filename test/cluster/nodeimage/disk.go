// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
)

// preload imports the images into the node's root with a containerd on the host, because unpacking and hashing them in the
// emulated node would take minutes. containerd runs in mount and process namespaces of its own, so that nothing of it stays.
func preload(ctx context.Context, s Spec, root, work string) error {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	text, err := files.ReadFile("files/preload.toml")
	if err != nil {
		return err
	}
	tmpl, err := template.New("preload").Parse(string(text))
	if err != nil {
		return err
	}
	var config bytes.Buffer
	if err := tmpl.Execute(&config, map[string]string{"Root": filepath.Join(root, "var/lib/containerd"), "State": work}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "config.toml"), config.Bytes(), 0o644); err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	script := `programs=$1 work=$2; shift 2
$programs/containerd --config $work/config.toml >$work/log 2>&1 & pid=$!
tries=0
until [ -S $work/containerd.sock ]; do
    tries=$((tries+1)); [ $tries -le 300 ] || { echo "containerd does not answer after 30 s:"; tail -5 $work/log; exit 1; }
    sleep 0.1
done
for image; do
    $programs/ctr --address $work/containerd.sock -n k8s.io images import --local --label io.cri-containerd.image=managed "$image" ||
        { echo "image $image cannot be imported"; exit 1; }
done
kill $pid; wait $pid; true`
	args := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
		"sh", "-c", script, "preload", s.Programs, work}, s.Images...)
	if out, err := exec.CommandContext(ctx, "unshare", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("preload images: %w\n%s", err, out)
	}
	return nil
}

// makeDisk packs root into an ext4 image, without a journal: a node's disk never outlives its cluster.
func makeDisk(ctx context.Context, root, disk string, freeMiB int) error {
	size := int64(0)
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size() + 4096
		return nil
	})
	if err != nil {
		return fmt.Errorf("size of the node's root: %w", err)
	}
	if err := os.RemoveAll(disk); err != nil {
		return err
	}
	mib := fmt.Sprintf("%dM", size>>20+int64(freeMiB))
	cmd := exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal",
		"-E", "lazy_itable_init=1,root_owner=0:0", "-d", root, disk, mib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs %s of %s: %w\n%s", disk, mib, err, out)
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return out.Close()
}
