// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Each creation of a container with a claim reads a kept file of every pool container. A read allocates only if the content has
// changed.
func TestReadKeptNeedsNoMemory(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "c", tree.FileCPUs)
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
	mount, err := cgroups.Open(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mount.Close()) })
	for _, content := range []string{"0-3", "4-7", "", "0-3,8", strings.Repeat("0-3,8-11,", 100) + "16"} {
		require.NoError(t, os.WriteFile(file, []byte(content+"\n"), 0o600))
		_, err := mount.ReadKept("c", tree.FileCPUs)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(10, func() {
			got, err := mount.ReadKept("c", tree.FileCPUs)
			if err != nil || got != content {
				t.Errorf("read %q (%v), want %q", got, err, content)
			}
		}))
	}
}

// KeptContents has what the kernel has at the moment of the call (I1), and opens nothing that is open.
func TestKeptContents(t *testing.T) {
	const dir, cpus, mems = "kubepods/c", tree.FileCPUs, tree.FileMems
	var counts testnode.Counts
	n := testnode.New(t, t.TempDir())
	n.AddCgroup(dir)
	n.SetFile(dir, cpus, "0-3")
	mount := cgroups.NewMount(counts.Of(n.Hierarchy()))
	has := func(want contract.Files) {
		t.Helper()
		got, err := mount.KeptContents(dir, cpus, mems, "absent")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	has(contract.Files{cpus: "0-3", mems: ""})
	require.EqualValues(t, 2, counts.Files.Load())

	n.SetFile(dir, cpus, "4-7") // another program's write
	counts.Cgroups.Store(0)
	got, err := mount.KeptContents(dir, cpus, mems)
	require.NoError(t, err)
	require.Equal(t, contract.Files{cpus: "4-7", mems: ""}, got)
	content, err := mount.Read(dir, cpus)
	require.NoError(t, err)
	require.Equal(t, "4-7", content)
	require.Zero(t, counts.Cgroups.Load())

	n.RemoveCgroup(dir)
	_, err = mount.KeptContents(dir, cpus)
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.Zero(t, counts.Files.Load())

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
	require.EqualValues(t, 2, counts.Files.Load())
	mount.CloseExcept(func(string) bool { return false })
	require.Zero(t, counts.Files.Load())
	has(contract.Files{cpus: "8", mems: ""})
	for range 2 {
		require.NoError(t, mount.Close())
		require.Zero(t, counts.Files.Load())
	}
	content, err = mount.Read(dir, cpus)
	require.NoError(t, err)
	require.Equal(t, "8", content, "by name: this hierarchy has no end")
}

// The open files take at most half of the process's descriptors. Without an open file, a file is read by name.
func TestKeptContentsOfManyFiles(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	for name, c := range map[string]struct{ descriptors, most uint64 }{
		"few descriptors":                 {256, 128},
		"the descriptors that a test has": {limit.Cur, min(8192, limit.Cur/2)},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: c.descriptors, Max: limit.Max}))
			var counts testnode.Counts
			all := make(plain)
			mount := cgroups.NewMount(counts.Of(all))
			require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			var names []string
			for i := range int(c.most) + 10 {
				names = append(names, fmt.Sprint(i))
				all[names[i]] = names[i]
			}
			for range 2 {
				got, err := mount.KeptContents("c", names...)
				require.NoError(t, err)
				require.Equal(t, contract.Files(all), got)
				require.EqualValues(t, c.most, counts.Files.Load())
				mount.CloseExcept(func(string) bool { return false })
				require.Zero(t, counts.Files.Load())
			}
		})
	}
}

// Two reads of a file at the same time leave one file open.
func TestConcurrentReads(t *testing.T) {
	var counts testnode.Counts
	var both sync.WaitGroup
	both.Add(2)
	mount := cgroups.NewMount(counts.Of(meeting{plain{"f": "1"}, &both}))
	var reads sync.WaitGroup
	for range 2 {
		reads.Go(func() {
			_, err := mount.ReadKept("c", "f")
			assert.NoError(t, err)
		})
	}
	reads.Wait()
	require.EqualValues(t, 1, counts.Files.Load())
}

// meeting is a hierarchy in which all that open a cgroup wait for each other.
type meeting struct {
	cgroups.Hierarchy
	all *sync.WaitGroup
}

func (h meeting) Open(dir string) (cgroups.Cgroup, error) {
	h.all.Done()
	h.all.Wait()
	return h.Hierarchy.Open(dir)
}

// A mount is closed although a read does not return. From then on it reads nothing: the next actuator may be at work (I1).
func TestReadAfterClose(t *testing.T) {
	n := testnode.New(t, t.TempDir())
	mount, err := n.OpenMount("")
	require.NoError(t, err)
	for _, dir := range []string{"kubepods/a", "kubepods/b"} {
		n.AddCgroup(dir)
		_, err := mount.ReadKept(dir, tree.FileCPUs)
		require.NoError(t, err)
	}
	reading, blocked := make(chan struct{}), make(chan struct{})
	n.Intercept("kubepods/a", tree.FileCPUs, func(_ bool, do func() error) error {
		close(reading)
		<-blocked
		return do()
	})
	var reads sync.WaitGroup
	reads.Go(func() { _, _ = mount.ReadKept("kubepods/a", tree.FileCPUs) })
	<-reading
	require.NoError(t, mount.Close())
	close(blocked)
	reads.Wait()
	_, err = mount.ReadKept("kubepods/b", tree.FileCPUs)
	require.ErrorIs(t, err, fs.ErrClosed)
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
