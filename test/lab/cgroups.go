// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest/mounted"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/remote"
)

// hierarchy has the cgroups of the node: the model of the kernel. The actuator and the
// guards, which are processes of their own, reach the cgroups through a socket. The
// frontend reads a copy of some files, in a directory.
type hierarchy struct {
	socket   string
	listener net.Listener
	copy     copied

	mu     sync.Mutex
	kernel *kerneltest.Kernel
	// outside are operations that the model leaves out.
	outside []error
	// namespace is the root of the actuator's cgroup namespace, empty for the first
	// namespace.
	namespace string
	// files are what happens to operations of the actuator and of guards, by file.
	files map[string]Operation
}

// Operation takes a read or write of a cgroup file. It can fail, or wait, or leave it out.
type Operation func(write bool, do func() error) error

// mountCgroups boots the kernel, and makes the cgroups that kubelet makes at its start.
// The frontend's sysfs has the copy.
func (n *Node) mountCgroups() {
	n.mkdir("sys/fs/cgroup")
	h := &hierarchy{
		socket: n.path("cgroup.sock"), kernel: kerneltest.New(n.o.Kernel, n.model()), files: make(map[string]Operation),
		copy: copied{dir: n.path("sys/fs/cgroup"), seen: make(map[string]string)},
	}
	n.cgroups = h
	var err error
	_ = os.Remove(h.socket)
	h.listener, err = net.Listen("unix", h.socket)
	require.NoError(n.t, err)
	require.NoError(n.t, remote.Serve(h.listener, mounted.Hierarchy{
		Kernel: h.kernel, Process: h, Namespace: func() string { return h.namespace },
	}))
	n.plug()
	n.SetCgroup("", "cgroup.subtree_control", controllers)
	for _, level := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		n.MakeCgroup(level)
	}
}

// controllers are the controllers of all cgroups.
const controllers = "+cpuset +memory +hugetlb"

// model returns the machine for the model of the kernel.
func (n *Node) model() kerneltest.Machine {
	m := kerneltest.Machine{PageSize: n.spec.PageSize}
	for _, c := range n.spec.CPUs {
		m.CPUs = append(m.CPUs, c.ID)
	}
	for _, node := range n.spec.Nodes {
		m.Nodes = append(m.Nodes, node.ID)
		if node.Memory > 0 {
			m.MemoryNodes = append(m.MemoryNodes, node.ID)
		}
		for size := range node.Hugepages {
			if !slices.Contains(m.HugepageSizes, size) {
				m.HugepageSizes = append(m.HugepageSizes, size)
			}
		}
	}
	return m
}

// plug takes the CPUs offline that are offline in the node's machine, and brings the
// others back.
func (n *Node) plug() {
	for _, c := range n.spec.CPUs {
		kind := kerneltest.Online
		if c.Offline {
			kind = kerneltest.Offline
		}
		require.NoError(n.t, n.cgroups.do(kerneltest.Operation{Kind: kind, CPU: c.ID}))
	}
}

// close ends the kernel.
func (h *hierarchy) close() {
	if h != nil {
		h.listener.Close()
	}
}

// do takes an operation of a program that is neither the actuator nor a guard.
func (h *hierarchy) do(o kerneltest.Operation) error {
	return h.change(o.Dir, func() error { return h.kernel.Do(o) })
}

func (h *hierarchy) change(dir string, do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err := do()
	if errors.Is(err, kerneltest.ErrOutside) {
		h.outside = append(h.outside, err)
	}
	return errors.Join(err, h.copy.update(h.kernel, dir), h.copy.update(h.kernel, "."))
}

func (h *hierarchy) look(do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return do()
}

// Open implements [mounted.Process].
func (h *hierarchy) Open(_ string, do func() error) error { return h.look(do) }

// Read implements [mounted.Process].
func (h *hierarchy) Read(dir, name string, do func() error) error {
	return h.operation(dir, name)(false, func() error { return h.look(do) })
}

// Write implements [mounted.Process].
func (h *hierarchy) Write(dir, file, _ string, do func() error) error {
	return h.operation(dir, file)(true, func() error { return h.change(dir, do) })
}

// operation returns what happens to operations on a file.
func (h *hierarchy) operation(dir, file string) Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.files[path.Join(dir, file)]; o != nil {
		return o
	}
	return func(_ bool, do func() error) error { return do() }
}

func (h *hierarchy) exists(dir string) bool {
	return h.look(func() error {
		_, err := h.kernel.Attributes(dir)
		return err
	}) == nil
}

func (h *hierarchy) dirs() (all []string) {
	_ = h.look(func() error {
		all = h.kernel.Dirs()
		return nil
	})
	return all
}

// InterceptCgroup lets o take the operations of the actuator and of guards on a cgroup
// file; with nil the kernel takes them again.
func (n *Node) InterceptCgroup(dir, file string, o Operation) {
	_ = n.cgroups.look(func() error {
		n.cgroups.files[path.Join(dir, file)] = o
		return nil
	})
}

// MakeCgroup makes a cgroup that has cgroups below it, as kubelet does.
func (n *Node) MakeCgroup(dir string) {
	require.NoError(n.t, n.cgroups.do(kerneltest.Operation{Kind: kerneltest.Mkdir, Dir: dir}))
	n.SetCgroup(dir, "cgroup.subtree_control", controllers)
}

// removeCgroup ends the processes of a cgroup and of all cgroups below it, and removes
// the cgroups.
func (n *Node) removeCgroup(dir string) {
	all := slices.DeleteFunc(n.cgroups.dirs(), func(d string) bool { return d != dir && !strings.HasPrefix(d, dir+"/") })
	for _, d := range slices.Backward(all) {
		for n.cgroups.do(kerneltest.Operation{Kind: kerneltest.Detach, Dir: d}) == nil {
		}
		require.NoError(n.t, n.cgroups.do(kerneltest.Operation{Kind: kerneltest.Rmdir, Dir: d}))
	}
}

// SetCgroup writes a cgroup file, as another program would.
func (n *Node) SetCgroup(dir, file, value string) {
	n.t.Helper()
	o := kerneltest.Operation{Kind: kerneltest.Write, Dir: dir, File: file, Content: value}
	require.NoError(n.t, n.cgroups.do(o), "%s", o)
}

// ReadCgroup reads a cgroup file.
func (n *Node) ReadCgroup(dir, file string) string {
	n.t.Helper()
	var content string
	require.NoError(n.t, n.cgroups.look(func() (err error) {
		content, err = n.cgroups.kernel.Read(dir, file)
		return err
	}), "%s/%s", dir, file)
	return content
}

// checkKernel checks that nothing has damaged the kernel's own data, that the kernel has
// lost no CPU, and that no operation was one that the model leaves out.
func (n *Node) checkKernel() {
	n.t.Helper()
	require.NoError(n.t, n.cgroups.look(func() error {
		return errors.Join(n.cgroups.outside...)
	}))
	var damage, lost string
	_ = n.cgroups.look(func() error {
		damage, lost = n.cgroups.kernel.Damage(), n.cgroups.kernel.Lost()
		return nil
	})
	require.Empty(n.t, damage, "the kernel is damaged")
	require.Empty(n.t, lost, "the kernel has lost CPUs")
}
