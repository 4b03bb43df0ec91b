// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
)

type files = map[string]string

// level makes a cgroup "level" with memory.min 10 and hugetlb.2MB.max 0. get
// and put read and write its files.
func level(t require.TestingT, mount string) (tree *cgroups.Tree, get func(string) string, put func(string, string)) {
	dir := filepath.Join(mount, "level")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	put = func(file, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content+"\n"), 0o644))
	}
	get = func(file string) string {
		data, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		return strings.TrimSpace(string(data))
	}
	put("memory.min", "10")
	put("hugetlb.2MB.max", "0")
	tree, err := cgroups.Open(mount)
	require.NoError(t, err)
	return tree, get, put
}

// A long list of CPUs comes back whole.
func TestRestoreOfALongList(t *testing.T) {
	tree, get, put := level(t, t.TempDir())
	var ids []int
	for id := range 64 {
		ids = append(ids, 2*id)
	}
	long := contract.CPUs(ids...).String()
	put(contract.FileExclusive, long)
	_, err := tree.Override("level", files{contract.FileExclusive: "4-7"}, nil)
	require.NoError(t, err)
	_, _, err = tree.Restore("level", nil)
	require.NoError(t, err)
	require.Equal(t, long, get(contract.FileExclusive))
}

func TestRestore(t *testing.T) {
	mount := t.TempDir()
	tree, get, put := level(t, mount)
	restored := func(keep, want files) {
		t.Helper()
		got, changed, err := tree.Restore("level", keep)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Len(t, changed, len(want))
		got, changed, err = tree.Restore("level", keep)
		require.NoError(t, err)
		require.Equal(t, want, got, "kept until it is released")
		require.Empty(t, changed, "and written once")
		require.NoError(t, tree.Release("level", got))
	}
	override := func(want, ours, wantFound files) {
		t.Helper()
		found, err := tree.Override("level", want, ours)
		require.NoError(t, err)
		require.Equal(t, wantFound, found)
	}
	restored(nil, files{})
	override(files{"memory.min": "20", "hugetlb.2MB.max": "max"}, nil, files{"memory.min": "10", "hugetlb.2MB.max": "0"})
	override(files{"memory.min": "30"}, files{"memory.min": "20"}, files{"memory.min": "20"})
	restored(files{"memory.min": "30"}, files{"hugetlb.2MB.max": "0"})
	require.Equal(t, "0", get("hugetlb.2MB.max"))
	require.Equal(t, "30", get("memory.min"))

	// A new actuator does not know what the old one wrote.
	override(files{"memory.min": "40"}, nil, files{"memory.min": "30"})
	restored(nil, files{"memory.min": "10"})
	restored(nil, files{})

	// The value that another program wrote meanwhile is given back.
	override(files{"memory.min": "20"}, nil, files{"memory.min": "10"})
	put("memory.min", "15")
	override(files{"memory.min": "20"}, files{"memory.min": "20"}, files{"memory.min": "15"})
	restored(nil, files{"memory.min": "15"})

	// A value that was there before is not the driver's.
	override(files{"memory.min": "15"}, nil, files{})
	restored(nil, files{})

	_, _, err := tree.Restore("gone", nil)
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.ErrorIs(t, tree.Release("gone", files{"memory.min": "0"}), cgroups.ErrGone)
}

func TestRestoreRefuses(t *testing.T) {
	mount := t.TempDir()
	tree, get, _ := level(t, mount)
	for file, value := range map[string]string{"memory.min": "much", "memory.high": "1", "../memory.min": "1"} {
		name := "user.dra.cpumem.former." + file
		require.NoError(t, unix.Setxattr(filepath.Join(mount, "level"), name, []byte(value), 0))
		restored, _, err := tree.Restore("level", nil)
		require.ErrorContains(t, err, "give back its former value")
		require.Empty(t, restored)
		require.NoError(t, unix.Removexattr(filepath.Join(mount, "level"), name))
	}
	require.Equal(t, "10", get("memory.min"))
}

// A46: the former value comes back, whatever is overridden and however often
// the actuator dies, also between keeping a value and writing, and between
// giving it back and forgetting it.
func TestFormerValuesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mount, err := os.MkdirTemp("", "former")
		require.NoError(t, err)
		defer os.RemoveAll(mount)
		tree, get, put := level(t, mount)
		former, ours := "10", ""
		attribute := func(value string) {
			err := unix.Setxattr(filepath.Join(mount, "level"), "user.dra.cpumem.former.memory.min", []byte(value), unix.XATTR_CREATE)
			if err != unix.EEXIST {
				require.NoError(t, err)
			}
		}
		held := false
		known := func() files {
			if ours == "" {
				return nil
			}
			return files{"memory.min": ours}
		}
		values := rapid.SampledFrom([]string{"0", "10", "20", "30"})
		t.Repeat(map[string]func(*rapid.T){
			"override": func(t *rapid.T) {
				want := values.Draw(t, "want")
				_, err := tree.Override("level", files{"memory.min": want}, known())
				require.NoError(t, err)
				require.Equal(t, want, get("memory.min"))
				held, ours = held || want != former, want
			},
			"die": func(*rapid.T) { ours = "" },
			"die when the value is kept": func(*rapid.T) {
				attribute(get("memory.min"))
				held, ours = true, ""
			},
			"die when the value is given back": func(t *rapid.T) {
				if !held {
					return
				}
				put("memory.min", former)
				attribute(former)
				ours = ""
			},
			"someone else": func(t *rapid.T) {
				value := values.Draw(t, "value")
				if held && (ours == "" || value == ours) {
					return // an earlier actuator could have written the value
				}
				put("memory.min", value)
				former = value
				if held {
					_, err := tree.Override("level", files{"memory.min": ours}, known())
					require.NoError(t, err)
				} else {
					ours = ""
				}
			},
			"restore": func(t *rapid.T) {
				returned, _, err := tree.Restore("level", nil)
				require.NoError(t, err)
				require.Equal(t, former, get("memory.min"))
				if rapid.Bool().Draw(t, "die before it is forgotten") {
					ours = ""
					return
				}
				require.NoError(t, tree.Release("level", returned))
				held, ours = false, ""
			},
		})
	})
}
