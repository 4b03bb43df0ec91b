// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"io/fs"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest/mounted"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/kernel/remote"
)

// process holds writes of memory.min until they are released.
type process struct{ arrived, release chan struct{} }

func (process) Open(_ string, do func() error) error    { return do() }
func (process) Read(_, _ string, do func() error) error { return do() }
func (p process) Write(_, file, _ string, do func() error) error {
	if file == "memory.min" {
		p.arrived <- struct{}{}
		<-p.release
	}
	return do()
}

// serve serves a machine with the cgroup a.
func serve(t *testing.T, p process) cgroups.Hierarchy {
	t.Helper()
	k := kerneltest.New(kerneltest.Linux612, kerneltest.Regular(4, 1))
	require.NoError(t, k.Write("", "cgroup.subtree_control", "+cpuset +memory"))
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.NoError(t, remote.Serve(l, mounted.Hierarchy{Kernel: k, Process: p}))
	h, err := remote.Dial(socket)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, h.Mkdir("a"))
	return h
}

// Contents, names and the errors of system calls come through the socket.
func TestOperations(t *testing.T) {
	h := serve(t, process{})
	require.ErrorIs(t, h.Mkdir("a"), fs.ErrExist)
	_, err := h.Open("b")
	require.ErrorIs(t, err, fs.ErrNotExist)
	root, err := h.Open(".")
	require.NoError(t, err)
	names, err := root.Children()
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names)

	a, err := h.Open("a")
	require.NoError(t, err)
	require.NoError(t, a.Write("cpuset.cpus", "1-2"))
	data, err := a.Read("cpuset.cpus")
	require.NoError(t, err)
	require.Equal(t, "1-2\n", string(data))
	require.ErrorIs(t, a.Write("cpuset.cpus", "9"), syscall.EINVAL)
	require.ErrorIs(t, a.Write("cpuset.cpus.effective", "1"), fs.ErrPermission)
	require.ErrorContains(t, a.Write("cgroup.subtree_control", "-cpuset"), kerneltest.ErrOutside.Error())

	_, err = a.Attribute("user.x")
	require.ErrorIs(t, err, syscall.ENODATA)
	require.NoError(t, a.SetAttribute("user.x", "1"))
	value, err := a.Attribute("user.x")
	require.NoError(t, err)
	require.Equal(t, "1", value)
	names, err = a.Attributes()
	require.NoError(t, err)
	require.Equal(t, []string{"user.x"}, names)
	require.NoError(t, a.RemoveAttribute("user.x"))
	require.ErrorIs(t, a.RemoveAttribute("user.x"), syscall.ENODATA)
	require.NoError(t, a.Close())

	require.NoError(t, h.Remove("a"))
	_, err = a.Read("cpuset.cpus")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A write that does not return keeps no other operation from returning.
func TestBlockedWrite(t *testing.T) {
	p := process{arrived: make(chan struct{}), release: make(chan struct{})}
	a, err := serve(t, p).Open("a")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- a.Write("memory.min", "4096") }()
	<-p.arrived
	data, err := a.Read("memory.min")
	require.NoError(t, err)
	require.Equal(t, "0\n", string(data))
	close(p.release)
	require.NoError(t, <-done)
	data, err = a.Read("memory.min")
	require.NoError(t, err)
	require.Equal(t, "4096\n", string(data))
}
