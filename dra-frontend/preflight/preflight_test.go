// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
)

const cgroup2 = "25 21 0:23 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - " +
	"cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"

func node(mountinfo, osrelease, cpuManager, memoryManager string) preflight.Node {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	kubelet := fstest.MapFS{}
	if cpuManager != "" {
		kubelet["cpu_manager_state"] = file(cpuManager)
	}
	if memoryManager != "" {
		kubelet["memory_manager_state"] = file(memoryManager)
	}
	return preflight.Node{
		Proc: fstest.MapFS{
			"self/mountinfo":            file(mountinfo),
			"sys/kernel/osrelease":      file(osrelease),
			"sys/kernel/random/boot_id": file("7a0c7a3e-0000-4000-8000-000000000000\n"),
		},
		Kubelet:    kubelet,
		MemoryHigh: true,
	}
}

func TestCheck(t *testing.T) {
	none, static := `{"policyName":"none"}`, `{"policyName":"static"}`
	for name, tc := range map[string]struct {
		node     preflight.Node
		want     string
		warnings int
	}{
		"fit":                   {node(cgroup2, "6.1.0-56-amd64\n", none, `{"policyName":"None"}`), "", 0},
		"state files not shown": {node(cgroup2, "5.9.0", "", ""), "", 2},
		"cgroup v1":             {node("25 21 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "6.1", none, none), "not cgroup v2", 0},
		"a second cgroup2 elsewhere does not count": {
			node:     node("25 21 0:23 / /run/calico/cgroup rw - cgroup2 none rw\n", "6.1", none, none),
			want:     "not cgroup v2",
			warnings: 0,
		},
		"a second cgroup2 elsewhere does not disturb": {
			node:     node(cgroup2+"26 21 0:23 / /run/calico/cgroup rw - cgroup2 none rw\n", "6.1", none, none),
			want:     "",
			warnings: 0,
		},
		"hugetlb accounting": {
			node:     node("25 21 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,memory_hugetlb_accounting\n", "6.1", none, none),
			want:     "memory_hugetlb_accounting",
			warnings: 0,
		},
		"old kernel":           {node(cgroup2, "5.8.18-generic", none, none), "kernel 5.8.18-generic can hang", 0},
		"not a kernel version": {node(cgroup2, "linux", none, none), `kernel version "linux"`, 0},
		"static CPU manager":   {node(cgroup2, "6.1", static, none), `cpuManagerPolicy "static"`, 0},
		"static memory manager": {
			node:     node(cgroup2, "6.1", none, `{"policyName":"Static"}`),
			want:     `memoryManagerPolicy "Static", which hands out the same CPUs and memory as this driver: set it to "None"`,
			warnings: 0,
		},
		"broken state file": {node(cgroup2, "6.1", "{", none), "cpu_manager_state", 0},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := preflight.Check(tc.node)
			require.Len(t, warnings, tc.warnings)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// An old kernel is fit if memory.high is not written.
func TestKernelMattersForMemoryHighOnly(t *testing.T) {
	n := node(cgroup2, "4.19", "", "")
	n.MemoryHigh = false
	_, err := preflight.Check(n)
	require.NoError(t, err)
}

func TestBootID(t *testing.T) {
	id, err := preflight.BootID(node("", "", "", "").Proc)
	require.NoError(t, err)
	require.Equal(t, "7a0c7a3e-0000-4000-8000-000000000000", id)
	_, err = preflight.BootID(fstest.MapFS{})
	require.ErrorContains(t, err, "boot id")
}

// The mount of a state file stays with the old file after kubelet has replaced
// it. A manager's policy in the old file is reported before the replacement.
func TestReplacedStateFile(t *testing.T) {
	for name, tc := range map[string]struct {
		policy, want string
		replaced     bool
	}{
		"fit":    {"none", "was replaced by another file", true},
		"static": {"static", `cpuManagerPolicy "static"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "state"))
			require.NoError(t, err)
			defer f.Close()
			_, err = fmt.Fprintf(f, `{"policyName":%q}`, tc.policy)
			require.NoError(t, err)
			kubelet := t.TempDir()
			require.NoError(t, os.Symlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), filepath.Join(kubelet, "cpu_manager_state")))
			n := node(cgroup2, "6.1", "", "")
			n.Kubelet = os.DirFS(kubelet)
			if tc.replaced {
				_, err = preflight.Check(n)
				require.NoError(t, err)
			}
			require.NoError(t, os.Remove(f.Name()))
			_, err = preflight.Check(n)
			require.ErrorContains(t, err, tc.want)
			require.Equal(t, tc.replaced, errors.Is(err, preflight.ErrReplaced))
		})
	}
}
