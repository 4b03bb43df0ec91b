// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

func TestContainerDir(t *testing.T) {
	for name, c := range map[string]struct{ path, want, err string }{
		"cgroupfs": {path: "/kubepods/besteffort/podu/id", want: "kubepods/besteffort/podu/id"},
		"systemd": {
			path: "kubepods-besteffort-podu_1.slice:cri-containerd:id",
			want: "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice/cri-containerd-id.scope",
		},
		"systemd, guaranteed": {path: "kubepods-podu.slice:crio:id", want: "kubepods.slice/kubepods-podu.slice/crio-id.scope"},
		"empty":               {path: "", err: "want /path or slice"},
		"the mount itself":    {path: "/", err: "not a clean absolute path"},
		"relative":            {path: "kubepods/podu/id", err: "want /path or slice"},
		"steps up":            {path: "/kubepods/../../etc", err: "not a clean absolute path"},
		"slice steps up":      {path: "..-x.slice:p:id", err: "not the name of a slice"},
		"name steps up":       {path: "kubepods.slice:p:../../id", err: "want /path or slice"},
		"empty word":          {path: "kubepods--x.slice:p:id", err: "not the name of a slice"},
		"not a slice":         {path: "kubepods:p:id", err: "not the name of a slice"},
		"too many parts":      {path: "kubepods.slice:p:id:x", err: "want /path or slice"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cgroups.ContainerDir(c.path)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestPodDirAndLevels(t *testing.T) {
	for name, c := range map[string]struct {
		parent, dir, err string
		levels           map[string]string
	}{
		"cgroupfs, guaranteed": {
			parent: "/kubepods/podu",
			dir:    "kubepods/podu",
			levels: map[string]string{"": "kubepods", "burstable": "kubepods/burstable", "besteffort": "kubepods/besteffort"},
		},
		"cgroupfs, burstable": {
			parent: "/kubepods/burstable/podu",
			dir:    "kubepods/burstable/podu",
			levels: map[string]string{"": "kubepods", "burstable": "kubepods/burstable", "besteffort": "kubepods/besteffort"},
		},
		"cgroupfs, kubelet in a cgroup": {
			parent: "/kubelet/kubepods/besteffort/podu",
			dir:    "kubelet/kubepods/besteffort/podu",
			levels: map[string]string{
				"":           "kubelet/kubepods",
				"burstable":  "kubelet/kubepods/burstable",
				"besteffort": "kubelet/kubepods/besteffort",
			},
		},
		"systemd, slice name": {
			parent: "kubepods-burstable-podu.slice",
			dir:    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu.slice",
			levels: map[string]string{
				"":           "kubepods.slice",
				"burstable":  "kubepods.slice/kubepods-burstable.slice",
				"besteffort": "kubepods.slice/kubepods-besteffort.slice",
			},
		},
		"systemd, path": {
			parent: "/kubepods.slice/kubepods-podu.slice",
			dir:    "kubepods.slice/kubepods-podu.slice",
			levels: map[string]string{
				"":           "kubepods.slice",
				"burstable":  "kubepods.slice/kubepods-burstable.slice",
				"besteffort": "kubepods.slice/kubepods-besteffort.slice",
			},
		},
		"systemd, kubelet in a slice": {
			parent: "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu.slice",
			dir:    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu.slice",
			levels: map[string]string{
				"":           "kubelet.slice/kubelet-kubepods.slice",
				"burstable":  "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
				"besteffort": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice",
			},
		},
		"not kubelet's":       {parent: "/machine/vm", dir: "machine/vm"},
		"empty":               {parent: "", err: "not a clean absolute path"},
		"steps up":            {parent: "/kubepods/../x", err: "not a clean absolute path"},
		"slice path steps up": {parent: "/a/../kubepods-podu.slice", err: "not a clean absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := cgroups.PodDir(c.parent)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.dir, dir)
			levels, err := cgroups.Levels(dir)
			if c.levels == nil {
				require.ErrorContains(t, err, "not below a kubepods cgroup")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.levels, levels)
		})
	}
}

func FuzzDirs(f *testing.F) {
	f.Add("/kubepods/podu/id")
	f.Add("kubepods-burstable-podu.slice:crio:id")
	f.Add("/kubepods.slice/../x.slice")
	f.Fuzz(func(t *testing.T, path string) {
		for _, parse := range []func(string) (string, error){cgroups.ContainerDir, cgroups.PodDir} {
			dir, err := parse(path)
			if err == nil && (!filepath.IsLocal(dir) || dir == "." || filepath.Clean(dir) != dir) {
				t.Fatalf("%q leads to %q", path, dir)
			}
			if err == nil {
				_, _ = cgroups.Levels(dir)
			}
		}
	})
}

// FuzzPodUID: the name of a cgroup gives a UID only if it is kubelet's name of that UID.
func FuzzPodUID(f *testing.F) {
	const uid = "00000000-0000-4000-8000-000000000001"
	f.Add("kubepods/burstable/pod" + uid)
	f.Add("kubepods.slice/kubepods-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice")
	f.Fuzz(func(t *testing.T, dir string) {
		got := cgroups.PodUID(dir)
		require.Empty(t, strings.Trim(got, "0123456789abcdef-"))
		if got != "" {
			name := strings.TrimSuffix(filepath.Base(dir), ".slice")
			require.True(t, strings.HasSuffix(strings.ReplaceAll(name, "_", "-"), "pod"+got))
		}
	})
}

// FuzzObserve: a cgroup's file and its mark of a former value have any content. Only a
// value that this driver may give back is a former value.
func FuzzObserve(f *testing.F) {
	root := f.TempDir()
	require.NoError(f, os.Mkdir(filepath.Join(root, "c"), 0o755))
	mount, err := cgroups.Open(root)
	require.NoError(f, err)
	f.Add("0-3,8\n", "memory.min", "4096")
	f.Add("max", "hugetlb.2MB.max", "max")
	f.Add("", "../c/memory.low", "-1")
	f.Fuzz(func(t *testing.T, content, file, former string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, "c", "cpuset.cpus"), []byte(content), 0o600))
		name := "user." + contract.Vendor + ".former." + file
		if unix.Setxattr(filepath.Join(root, "c"), name, []byte(former), 0) == nil {
			defer func() { require.NoError(t, unix.Removexattr(filepath.Join(root, "c"), name)) }()
		}
		if cpus, err := mount.ReadCPUs("c", "cpuset.cpus"); err == nil {
			again, err := contract.ParseCPUs(strings.TrimSpace(content))
			require.NoError(t, err)
			require.Equal(t, again, cpus)
		}
		state, err := mount.Observe("c", "cpuset.cpus")
		require.NoError(t, err)
		require.NoError(t, state.Former.Validate())
	})
}

func TestObserveAndTake(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	mount, err := cgroups.Open(root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mount.Close()) })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cpuset.cpus"), []byte("0-15\n"), 0o644))

	state, err := mount.Observe("a/b", "cpuset.cpus", "memory.low")
	require.NoError(t, err, "a file that does not exist has no content")
	require.Equal(t, contract.Files{"cpuset.cpus": "0-15"}, state.Files)
	require.Empty(t, state.Written)

	require.NoError(t, mount.WriteStep(tree.Step{Dir: "a/b", File: "cpuset.cpus", Content: "1"}))
	state, err = mount.Observe("a/b", "cpuset.cpus")
	require.NoError(t, err)
	require.Equal(t, contract.Files{"cpuset.cpus": "1"}, state.Files, "nothing of a longer content stays")
	require.Equal(t, contract.Files{"cpuset.cpus": "1"}, state.Written)
	require.Empty(t, state.Former)

	require.NoError(t, mount.WriteStep(tree.Step{Dir: "a/b", File: "cpuset.cpus", Content: "2", Act: tree.MarkWritten}))
	state, err = mount.Observe("a/b", "cpuset.cpus")
	require.NoError(t, err)
	require.Equal(t, "1", state.Files["cpuset.cpus"], "only the mark changes")
	require.Equal(t, "2", state.Written["cpuset.cpus"])

	err = mount.WriteStep(tree.Step{Dir: "a/b", File: "memory.low", Content: "0"})
	require.ErrorContains(t, err, "has no file memory.low: enable the file's controller")
	require.NotErrorIs(t, err, cgroups.ErrGone)
	_, err = mount.Observe("a/c", "memory.low")
	require.ErrorIs(t, err, cgroups.ErrGone)
	_, err = mount.Read("a/c", "memory.low")
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.True(t, mount.Exists("a/b"))
	require.False(t, mount.Exists("a/c"))
	require.True(t, mount.Exists(strings.Repeat("a", 300)), "nothing shows that it is gone")
}

func TestMountIsConfined(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.MkdirAll(outside, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "memory.low"), []byte("1"), 0o644))
	mount := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(mount, "link")))
	open, err := cgroups.Open(mount)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, open.Close()) })
	for _, dir := range []string{"link", strings.Repeat("../", 10) + outside} {
		err := open.WriteStep(tree.Step{Dir: dir, File: "memory.low", Content: "0"})
		require.Error(t, err)
	}
	data, err := os.ReadFile(filepath.Join(outside, "memory.low"))
	require.NoError(t, err)
	require.Equal(t, "1", string(data))
}
