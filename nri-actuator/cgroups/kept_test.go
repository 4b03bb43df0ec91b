// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// tracked is a hierarchy that counts its open files and the cgroups that were opened.
type tracked struct {
	cgroups.Hierarchy
	files, opened *int
}

func (h tracked) Open(dir string) (cgroups.Cgroup, error) {
	*h.opened++
	c, err := h.Hierarchy.Open(dir)
	if err != nil {
		return nil, err
	}
	return trackedCgroup{c, h.files}, nil
}

type trackedCgroup struct {
	cgroups.Cgroup
	files *int
}

func (c trackedCgroup) OpenFile(file string) (cgroups.File, error) {
	f, err := c.Cgroup.OpenFile(file)
	if err != nil {
		return nil, err
	}
	*c.files++
	return trackedFile{f, c.files}, nil
}

type trackedFile struct {
	cgroups.File
	files *int
}

func (f trackedFile) Close() error {
	*f.files--
	return f.File.Close()
}

// KeptContents has what the kernel has at the moment of the call (I1), and opens nothing that is open.
func TestKeptContents(t *testing.T) {
	const dir, cpus, mems = "kubepods/c", tree.FileCPUs, tree.FileMems
	var files, opened int
	n := testnode.New(t, t.TempDir())
	n.AddCgroup(dir)
	n.SetFile(dir, cpus, "0-3")
	mount := cgroups.NewMount(tracked{n.Hierarchy(), &files, &opened})
	has := func(want contract.Files) {
		t.Helper()
		got, err := mount.KeptContents(dir, cpus, mems, "absent")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	has(contract.Files{cpus: "0-3", mems: ""})
	require.Equal(t, 2, files)

	n.SetFile(dir, cpus, "4-7") // another program's write
	opened = 0
	got, err := mount.KeptContents(dir, cpus, mems)
	require.NoError(t, err)
	require.Equal(t, contract.Files{cpus: "4-7", mems: ""}, got)
	content, err := mount.Read(dir, cpus)
	require.NoError(t, err)
	require.Equal(t, "4-7", content)
	require.Zero(t, opened)

	n.RemoveCgroup(dir)
	_, err = mount.KeptContents(dir, cpus)
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.Zero(t, files)

	n.AddCgroup(dir)
	has(contract.Files{cpus: "", mems: ""})
	n.RemoveCgroup(dir)
	n.AddCgroup(dir)
	n.SetFile(dir, cpus, "8")
	content, err = mount.Read(dir, cpus)
	require.NoError(t, err)
	require.Equal(t, "8", content, "of the new cgroup")
	has(contract.Files{cpus: "8", mems: ""})

	back := n.Fail(dir, cpus, syscall.EIO)
	_, err = mount.KeptContents(dir, cpus, mems)
	require.ErrorIs(t, err, syscall.EIO)
	back()
	has(contract.Files{cpus: "8", mems: ""})

	mount.CloseExcept(func(d string) bool { return d == dir })
	require.Equal(t, 2, files)
	mount.CloseExcept(func(string) bool { return false })
	require.Zero(t, files)
	has(contract.Files{cpus: "8", mems: ""})
	require.NoError(t, mount.Close())
	require.Zero(t, files)
}

// The number of open files has a bound. Without an open file, a file is read by name.
func TestKeptContentsOfManyFiles(t *testing.T) {
	const most = 4096
	var files, opened int
	all := make(plain)
	var names []string
	for i := range most + 10 {
		names = append(names, fmt.Sprint(i))
		all[names[i]] = names[i]
	}
	mount := cgroups.NewMount(tracked{all, &files, &opened})
	for range 2 {
		got, err := mount.KeptContents("c", names...)
		require.NoError(t, err)
		require.Equal(t, contract.Files(all), got)
		require.Equal(t, most, files)
	}
	require.NoError(t, mount.Close())
	require.Zero(t, files)
}

// The kernel itself: an open file has the present content, and none of a removed cgroup.
func TestKeptContentsFromTheKernel(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		require.Empty(t, os.Getenv("CI"), "mount cgroup2: %v", err)
		t.Skip("mount cgroup2: ", err)
	}
	defer func() { require.NoError(t, unix.Unmount(root, 0)) }()
	const file = "cgroup.max.depth"
	dir := fmt.Sprintf("cpumem-test-%d", os.Getpid())
	require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	defer os.Remove(filepath.Join(root, dir))
	mount, err := cgroups.Open(root)
	require.NoError(t, err)
	defer mount.Close()
	has := func(want string) {
		t.Helper()
		got, err := mount.KeptContents(dir, file)
		require.NoError(t, err)
		require.Equal(t, contract.Files{file: want}, got)
	}
	has("max")
	require.NoError(t, os.WriteFile(filepath.Join(root, dir, file), []byte("7"), 0o644))
	has("7")
	require.NoError(t, os.Remove(filepath.Join(root, dir)))
	_, err = mount.KeptContents(dir, file)
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	has("max")
	require.NoError(t, os.Remove(filepath.Join(root, dir)))
	require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	has("max")
}
