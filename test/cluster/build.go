// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const kubernetesVersion = "v1.36.3"

// shared is a module of several programs, which have most of their packages in common. One module gives each package one
// version, so Go compiles it once.
const shared = "programs"

// program is one `go build`.
type program struct {
	name     string
	dir      string   // relative to this module
	packages []string // as the arguments of `go build` in dir
	out      string   // below bin; ends in / (a directory) if there are several packages
	tags     string
	ldflags  string
	cgo      bool
	links    []string // further names of the binary, in bin
}

func programs() []program {
	const (
		containerd = "github.com/containerd/containerd/v2/"
		cni        = "github.com/containernetworking/plugins/plugins/"
	)
	return []program{
		{
			name: "kubernetes", dir: shared, packages: []string{"./kubernetes"}, out: "kubernetes",
			ldflags: kubernetesFlags(),
			links:   append([]string{"kubectl", "kubelet"}, controlPlane...),
		},
		{
			name: "containerd", dir: shared, out: "./",
			packages: []string{containerd + "cmd/containerd", containerd + "cmd/containerd-shim-runc-v2", containerd + "cmd/ctr"},
			tags:     "no_btrfs no_devmapper no_zfs osusergo netgo",
			ldflags:  "-X " + containerd + "version.Version=v2.3.7",
		},
		{
			name: "cni", dir: shared, out: "cni/",
			packages: []string{cni + "main/bridge", cni + "main/loopback", cni + "ipam/host-local"},
		},
		{
			name: "helm", dir: shared, packages: []string{"helm.sh/helm/v4/cmd/helm"}, out: "helm",
			ldflags: "-X helm.sh/helm/v4/internal/version.version=v4.3.1",
		},
		{ // sandboxes have the default seccomp profile: without the tag seccomp none starts
			name: "runc", dir: "programs/runc", packages: []string{"github.com/opencontainers/runc"}, out: "runc", cgo: true,
			tags: "seccomp osusergo netgo", ldflags: "-linkmode external -extldflags -static -X main.version=1.5.2",
		},
		{name: "pause", dir: "pause", packages: []string{"."}, out: "pause"},
		{name: "probe", dir: "probe", packages: []string{"."}, out: "probe"},
		{name: "pcidriver", dir: "pcidriver", packages: []string{"."}, out: "pcidriver"},
	}
}

// Build installs packages that the host lacks, unpacks kernels and systemd, and builds the programs. Parts that exist
// and have not changed are kept.
func (c *Cluster) Build(ctx context.Context) error {
	if err := c.prepareHost(ctx); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, kernel := range c.opts.kernels() {
		if err := c.unpackKernel(ctx, kernel); err != nil {
			return err
		}
	}
	if err := c.unpackSystemd(ctx); err != nil {
		return err
	}
	source, err := c.source()
	if err != nil {
		return err
	}
	return c.buildPrograms(ctx, source, programs())
}

// buildPrograms builds the programs of the module shared one after the other, because two builds at a time compile a
// package that both need twice. The other programs are built beside them.
func (c *Cluster) buildPrograms(ctx context.Context, source string, all []program) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	build := func(of func(program) bool) error {
		for i, p := range all {
			if !of(p) {
				continue
			}
			if err := c.buildProgram(ctx, source, p, fmt.Sprintf("part %d of %d", i+1, len(all))); err != nil {
				stop() // the error of the builds beside is that they were ended
				return err
			}
		}
		return nil
	}
	others := make(chan error)
	go func() { others <- build(func(p program) bool { return p.dir != shared }) }()
	err := build(func(p program) bool { return p.dir == shared })
	return errors.Join(err, <-others)
}

// BuildKubeadm builds kubeadm unless it is there, and returns its path. Build leaves it out: no node of this package needs it.
func (c *Cluster) BuildKubeadm(ctx context.Context) (path string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	source, err := c.source()
	if err != nil {
		return "", err
	}
	kubeadm := program{
		name: "kubeadm", dir: shared, packages: []string{"k8s.io/kubernetes/cmd/kubeadm"}, out: "kubeadm",
		ldflags: kubernetesFlags(),
	}
	return c.Program(kubeadm.name), c.buildProgram(ctx, source, kubeadm, "part 1 of 1")
}

// source returns this module's directory.
func (c *Cluster) source() (string, error) {
	if c.opts.Source != "" {
		return c.opts.Source, nil
	}
	return findSource()
}

// kubernetesFlags returns the linker's flags that give Kubernetes' programs their version.
func kubernetesFlags() string {
	return fmt.Sprintf("-X %[1]sVersion=%[2]s -X %[1]sMajor=1 -X %[1]sMinor=36 -X k8s.io/client-go/pkg/version.gitVersion=%[2]s",
		"k8s.io/component-base/version.git", kubernetesVersion)
}

// compiler returns the environment of a build that is done once and debugged never: no debugging information, and
// more memory before the compiler collects garbage, which saves a sixth of the time. A build with other flags shares
// no compiled package with it: images.sh, the Makefile, .ci/run and test/chart have the same (TestCompilerFlags).
func compiler() []string { return []string{"GOFLAGS=-gcflags=all=-dwarf=false", "GOGC=400"} }

// buildProgram builds a program unless it is there. part is its place among all, for people.
func (c *Cluster) buildProgram(ctx context.Context, source string, p program, part string) error {
	dir := filepath.Join(source, p.dir)
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + p.ldflags)}
	if p.tags != "" {
		args = append(args, "-tags", p.tags)
	}
	args = append(args, "-o", c.dir+"/bin/"+p.out) // filepath.Join would drop the slash that marks a directory
	args = append(args, p.packages...)
	key, err := sourceKey(dir, p.packages, args)
	if err != nil {
		return err
	}
	stamp := c.path("bin", "."+p.name)
	if old, err := os.ReadFile(stamp); err == nil && string(old) == key {
		return nil
	}
	if err := os.MkdirAll(c.path("bin", "cni"), 0o755); err != nil {
		return err
	}
	c.logf("%s: building %s (the first time: minutes)", part, p.name)
	// A build that does not end must not leave the stamp of another program.
	if err := os.Remove(stamp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	begin := time.Now()
	cgo := "CGO_ENABLED=0"
	if p.cgo {
		cgo = "CGO_ENABLED=1"
	}
	if _, err := run(ctx, dir, append(compiler(), "GOWORK=off", cgo), "go", args...); err != nil {
		return fmt.Errorf("build %s: %w", p.name, err)
	}
	for _, l := range p.links {
		link := c.path("bin", l)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(p.out, link); err != nil {
			return err
		}
	}
	c.logf("%s: built %s in %.0f s", part, p.name, time.Since(begin).Seconds())
	return os.WriteFile(stamp, []byte(key), 0o644)
}

// sourceKey returns a hash of all that a program is built from: Go's version, the arguments, and the files, except tests,
// of dir and of its packages.
func sourceKey(dir string, packages, args []string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), args)
	files, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		return "", err
	}
	for _, p := range packages {
		if !strings.HasPrefix(p, "./") {
			continue
		}
		of, err := filepath.Glob(filepath.Join(dir, p, "*.*"))
		if err != nil {
			return "", err
		}
		files = append(files, of...)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), len(data))
		h.Write(data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// fileKey writes the file's name and the hash of its content to h.
func fileKey(h io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	_, err = fmt.Fprintf(h, "%s %x\n", filepath.Base(file), sum.Sum(nil))
	return err
}
