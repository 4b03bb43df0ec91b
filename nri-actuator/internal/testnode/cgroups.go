// SPDX-License-Identifier: Apache-2.0

package testnode

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest/mounted"
)

// hierarchy is the kernel's hierarchy. It implements [mounted.Process] for the process
// under test.
type hierarchy struct {
	mu     sync.Mutex
	kernel *kerneltest.Kernel
	// outside are operations that the model leaves out.
	outside []error
	// taken are the operations of the process under test that the test takes, by cgroup
	// and file.
	taken map[[2]string]Operation
}

// Operation takes a read or write of the process under test. It can fail, or wait, or
// leave it out.
type Operation func(write bool, do func() error) error

// boot starts the kernel, with the cgroups that kubelet makes.
func (n *Node) boot(release kerneltest.Release) {
	n.cgroups.kernel = kerneltest.New(release, kerneltest.Regular(16, 2))
	n.cgroups.taken = make(map[[2]string]Operation)
	n.SetFile("", "cgroup.subtree_control", controllers)
	for _, level := range []string{"kubepods/burstable", "kubepods/besteffort"} {
		n.AddCgroup(level)
	}
	if t, ends := n.t.(interface{ Cleanup(func()) }); ends {
		t.Cleanup(n.check)
	}
}

// controllers are the controllers of all cgroups.
const controllers = "+cpuset +cpu +memory +hugetlb"

// check fails the test if it has damaged the kernel's own data, has lost CPUs or has left
// the model.
func (n *Node) check() {
	n.cgroups.mu.Lock()
	defer n.cgroups.mu.Unlock()
	assert.NoError(n.t, errors.Join(n.cgroups.outside...))
	assert.Empty(n.t, n.cgroups.kernel.Damage(), "the kernel is damaged")
	if !n.MayLoseCPUs {
		assert.Empty(n.t, n.cgroups.kernel.Lost(), "the kernel has lost CPUs")
	}
}

// Mount returns the cgroups as the process under test sees them.
func (n *Node) Mount() *cgroups.Mount { return n.MountIn("") }

// MountIn returns the cgroups as a process in a cgroup namespace sees them, whose root is
// the cgroup namespace.
func (n *Node) MountIn(namespace string) *cgroups.Mount {
	return cgroups.NewMount(n.hierarchyIn(namespace))
}

// Hierarchy returns the cgroups that Mount is on.
func (n *Node) Hierarchy() cgroups.Hierarchy { return n.hierarchyIn("") }

func (n *Node) hierarchyIn(namespace string) cgroups.Hierarchy {
	return mounted.Hierarchy{
		Kernel: n.cgroups.kernel, Process: &n.cgroups, Namespace: func() string { return namespace },
	}
}

// OpenMount opens the node's cgroups, whatever root is. As a real mount, it opens no cgroup after its Close.
func (n *Node) OpenMount(string) (*cgroups.Mount, error) {
	return cgroups.NewMount(&closable{Hierarchy: n.Hierarchy(), closes: n.Closes}), nil
}

type closable struct {
	cgroups.Hierarchy
	closes func()
	closed atomic.Bool
}

func (c *closable) Open(dir string) (cgroups.Cgroup, error) {
	if c.closed.Load() {
		return nil, fs.ErrClosed
	}
	return c.Hierarchy.Open(dir)
}

func (c *closable) Close() error {
	c.closed.Store(true)
	if c.closes != nil {
		c.closes()
	}
	return c.Hierarchy.Close()
}

// Open implements [mounted.Process].
func (h *hierarchy) Open(_ string, do func() error) error { return h.do(do) }

// Read implements [mounted.Process].
func (h *hierarchy) Read(dir, name string, do func() error) error {
	return h.operation(dir, name)(false, func() error { return h.do(do) })
}

// Write implements [mounted.Process].
func (h *hierarchy) Write(dir, file, _ string, do func() error) error {
	return h.operation(dir, file)(true, func() error { return h.do(do) })
}

// operation returns what happens to operations on a file.
func (h *hierarchy) operation(dir, file string) Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.taken[[2]string{dir, file}]; o != nil {
		return o
	}
	return func(_ bool, do func() error) error { return do() }
}

// do takes an operation of any program.
func (h *hierarchy) do(do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := do()
	if errors.Is(err, kerneltest.ErrOutside) {
		h.outside = append(h.outside, err)
	}
	return err
}

// Intercept lets o take the operations of the process under test on a cgroup file, or on
// the cgroup's list of children if file is empty. After back the kernel takes them again.
func (n *Node) Intercept(dir, file string, o Operation) (back func()) {
	set := func(o Operation) {
		_ = n.cgroups.do(func() error {
			n.cgroups.taken[[2]string{dir, file}] = o
			return nil
		})
	}
	set(o)
	return func() { set(nil) }
}

// Fail lets reads and writes of a cgroup file fail until back is called.
func (n *Node) Fail(dir, file string, err error) (back func()) {
	return n.Intercept(dir, file, func(bool, func() error) error { return err })
}

// FailWrites lets writes of a cgroup file fail until back is called.
func (n *Node) FailWrites(dir, file string, err error) (back func()) {
	return n.Intercept(dir, file, func(write bool, do func() error) error {
		if write {
			return err
		}
		return do()
	})
}

// RemoveFile removes a cgroup file, as on a kernel without it, until back is called.
func (n *Node) RemoveFile(dir, file string) (back func()) { return n.Fail(dir, file, syscall.ENOENT) }

// Block lets reads and writes of a cgroup file wait until free is called, as the kernel
// does while it waits for one of its locks.
func (n *Node) Block(dir, file string) (free func()) {
	freed := make(chan struct{})
	back := n.Intercept(dir, file, func(_ bool, do func() error) error {
		<-freed
		return do()
	})
	return func() {
		back()
		close(freed)
	}
}

// AddCgroup makes a cgroup and the cgroups above it, if they do not exist. A container's
// cgroup has a process, as the OCI runtime starts one.
func (n *Node) AddCgroup(dir string) {
	dir = clean(dir)
	if dir == "" || n.Exists(dir) {
		return
	}
	n.AddCgroup(path.Dir(dir))
	n.take(kerneltest.Operation{Kind: kerneltest.Mkdir, Dir: dir})
	if cgroups.PodUID(path.Dir(dir)) != "" {
		n.take(kerneltest.Operation{Kind: kerneltest.Attach, Dir: dir})
		return
	}
	n.SetFile(dir, "cgroup.subtree_control", controllers)
}

// EndProcesses ends the processes of a cgroup.
func (n *Node) EndProcesses(dir string) {
	for n.cgroups.do(func() error { return n.cgroups.kernel.Detach(clean(dir)) }) == nil {
	}
}

// RemoveCgroup ends the processes of a cgroup and of all cgroups below it, and removes the
// cgroups.
func (n *Node) RemoveCgroup(dir string) {
	for _, d := range slices.Backward(n.Dirs()) {
		if d == clean(dir) || strings.HasPrefix(d, clean(dir)+"/") {
			n.EndProcesses(d)
			n.take(kerneltest.Operation{Kind: kerneltest.Rmdir, Dir: d})
		}
	}
}

// SetFile writes a cgroup file as another program would.
func (n *Node) SetFile(dir, file, content string) {
	n.take(kerneltest.Operation{Kind: kerneltest.Write, Dir: clean(dir), File: file, Content: content})
}

// SetAttribute sets an extended attribute of a cgroup as another program would.
func (n *Node) SetAttribute(dir, name, value string) {
	require.NoError(n.t, n.cgroups.do(func() error {
		all, err := n.cgroups.kernel.Attributes(clean(dir))
		if err == nil {
			all[name] = value
		}
		return err
	}))
}

// take takes an operation of another program.
func (n *Node) take(o kerneltest.Operation) {
	require.NoError(n.t, n.cgroups.do(func() error { return n.cgroups.kernel.Do(o) }), "%s", o)
}

// SetOnline takes CPUs offline, or brings them back.
func (n *Node) SetOnline(online bool, cpus ...int) {
	kind := kerneltest.Offline
	if online {
		kind = kerneltest.Online
	}
	for _, cpu := range cpus {
		n.take(kerneltest.Operation{Kind: kind, CPU: cpu})
	}
}

// File returns the content of a cgroup file.
func (n *Node) File(dir, file string) string {
	content := ""
	require.NoError(n.t, n.cgroups.do(func() (err error) {
		content, err = n.cgroups.kernel.Read(clean(dir), file)
		return err
	}), "%s/%s", dir, file)
	return content
}

// CopyTo writes all cgroups as directories with plain files and attributes, below dir.
// Benchmarks read them with real system calls.
func (n *Node) CopyTo(dir string) {
	for _, cgroup := range append([]string{""}, n.Dirs()...) {
		var contents, attributes map[string]string
		require.NoError(n.t, n.cgroups.do(func() (err error) {
			if contents, err = n.cgroups.kernel.Contents(cgroup); err == nil {
				attributes, err = n.cgroups.kernel.Attributes(cgroup)
			}
			return err
		}))
		at := filepath.Join(dir, cgroup)
		require.NoError(n.t, os.MkdirAll(at, 0o700))
		for name, content := range contents {
			require.NoError(n.t, os.WriteFile(filepath.Join(at, name), []byte(content+"\n"), 0o600))
		}
		for name, value := range attributes {
			require.NoError(n.t, unix.Setxattr(at, name, []byte(value), 0))
		}
	}
}

// Exists reports whether the cgroup exists.
func (n *Node) Exists(dir string) bool {
	return n.cgroups.do(func() error {
		_, err := n.cgroups.kernel.Attributes(clean(dir))
		return err
	}) == nil
}

// Dirs returns all cgroups below the root, parents first.
func (n *Node) Dirs() (all []string) {
	_ = n.cgroups.do(func() error {
		all = n.cgroups.kernel.Dirs()
		return nil
	})
	return all
}

// clean returns the name of a cgroup whose path may begin with a slash, empty for the
// root.
func clean(dir string) string { return strings.TrimPrefix(path.Clean("/"+dir), "/") }
