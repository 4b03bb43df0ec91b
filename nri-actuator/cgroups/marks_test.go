// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// level is the cgroup "level" of kubelet with memory.min 10 and hugetlb.2MB.max
// 0.
type level struct {
	t     require.TestingT
	dir   string
	mount *cgroups.Mount
}

func newLevel(t require.TestingT, mount string) *level {
	l := &level{t: t, dir: filepath.Join(mount, "level")}
	require.NoError(t, os.MkdirAll(l.dir, 0o755))
	l.put("memory.min", "10")
	l.put("hugetlb.2MB.max", "0")
	var err error
	l.mount, err = cgroups.Open(mount)
	require.NoError(t, err)
	return l
}

func (l *level) put(file, content string) {
	require.NoError(l.t, os.WriteFile(filepath.Join(l.dir, file), []byte(content+"\n"), 0o644))
}

func (l *level) get(file string) string {
	data, err := os.ReadFile(filepath.Join(l.dir, file))
	require.NoError(l.t, err)
	return strings.TrimSpace(string(data))
}

// steps plans as package enforce does, and takes the first n steps.
func (l *level) steps(want contract.Files, n int) (tree.Cgroup, tree.State) {
	desired := tree.Cgroup{Kind: tree.Level, Files: want}
	var files []string
	for file := range want {
		files = append(files, file)
	}
	state, err := l.mount.Observe("level", files...)
	require.NoError(l.t, err)
	for i, step := range tree.Steps(map[string]tree.Cgroup{"level": desired}, map[string]tree.State{"level": state}) {
		if i == n {
			break
		}
		require.NoError(l.t, l.mount.WriteStep(step))
	}
	return desired, state
}

// bring brings the level to what is wanted.
func (l *level) bring(want contract.Files) {
	l.steps(want, 1<<10)
	_, state := l.steps(want, 0)
	returned, overwritten := state.GivenBack(want)
	require.NoError(l.t, l.mount.RemoveMarks("level", returned))
	require.NoError(l.t, l.mount.RemoveMarks("level", overwritten))
}

// A long list of CPUs comes back whole.
func TestALongListComesBack(t *testing.T) {
	l := newLevel(t, t.TempDir())
	var ids []int
	for id := range 64 {
		ids = append(ids, 2*id)
	}
	long := contract.CPUs(ids...).String()
	l.put(contract.FileExclusive, long)
	l.bring(contract.Files{contract.FileExclusive: "300"})
	require.Equal(t, "300", l.get(contract.FileExclusive))
	l.bring(nil)
	require.Equal(t, long, l.get(contract.FileExclusive))
}

func TestFormerContents(t *testing.T) {
	l := newLevel(t, t.TempDir())
	l.bring(contract.Files{"memory.min": "20", "hugetlb.2MB.max": "max"})
	l.bring(contract.Files{"memory.min": "30"})
	require.Equal(t, []string{"30", "0"}, []string{l.get("memory.min"), l.get("hugetlb.2MB.max")})
	l.bring(nil)
	require.Equal(t, "10", l.get("memory.min"))

	// A content that another program writes meanwhile is the one to give back.
	l.bring(contract.Files{"memory.min": "20"})
	l.put("memory.min", "15")
	l.bring(contract.Files{"memory.min": "20"})
	l.bring(nil)
	require.Equal(t, "15", l.get("memory.min"))

	// A content that another program wrote last stays.
	l.bring(contract.Files{"memory.min": "20"})
	l.put("memory.min", "17")
	l.bring(nil)
	require.Equal(t, "17", l.get("memory.min"))

	// A content that was there before is not the driver's.
	l.bring(contract.Files{"memory.min": "17"})
	l.put("memory.min", "18")
	l.bring(nil)
	require.Equal(t, "18", l.get("memory.min"))
	state, err := l.mount.Observe("level")
	require.NoError(t, err)
	require.Empty(t, state.Former)

	_, err = l.mount.Observe("gone")
	require.ErrorIs(t, err, cgroups.ErrGone)
	require.ErrorIs(t, l.mount.RemoveMarks("gone", contract.Files{"memory.min": "0"}), cgroups.ErrGone)
	require.ErrorIs(t, l.mount.WriteStep(tree.Step{Dir: "gone", File: "memory.min"}), cgroups.ErrGone)
}

// limited is a hierarchy in which the removal of one attribute fails, counted from 0.
type limited struct {
	cgroups.Hierarchy
	fails *int
}

func (l limited) Open(dir string) (cgroups.Cgroup, error) {
	c, err := l.Hierarchy.Open(dir)
	return limitedCgroup{c, l.fails}, err
}

type limitedCgroup struct {
	cgroups.Cgroup
	fails *int
}

func (c limitedCgroup) RemoveAttribute(name string) error {
	if *c.fails--; *c.fails == -1 {
		return syscall.EIO
	}
	return c.Cgroup.RemoveAttribute(name)
}

// I4: what another program wrote last stays, wherever the removal of the marks ends.
func TestMarksThatAreRemovedInPart(t *testing.T) {
	for fails := range 2 {
		n := testnode.New(t, t.TempDir())
		n.AddCgroup("level")
		n.SetFile("level", "memory.min", "4096")
		left := -1
		l := &level{t: t, mount: cgroups.NewMount(limited{n.Hierarchy(), &left})}
		l.bring(contract.Files{"memory.min": "8192"})
		require.Equal(t, "8192", n.File("level", "memory.min"))
		n.SetFile("level", "memory.min", "12288")
		left = fails
		require.ErrorIs(t, l.mount.RemoveMarks("level", contract.Files{"memory.min": "12288"}), syscall.EIO)
		l.steps(nil, 1<<10)
		require.Equal(t, "12288", n.File("level", "memory.min"), "removal %d fails", fails)
	}
}

// A former value that this driver may not write is not given back.
func TestForgedFormerContents(t *testing.T) {
	mount := t.TempDir()
	l := newLevel(t, mount)
	for file, c := range map[string]struct{ value, fault string }{
		"memory.min": {"much", "its former value cannot be given back"},
		// A later version may write more files, and may have been rolled back.
		"memory.later": {"1", ""}, "../memory.min": {"1", ""},
	} {
		name := "user.dra.cpumem.former." + file
		require.NoError(t, unix.Setxattr(l.dir, name, []byte(c.value), 0))
		state, err := l.mount.Observe("level")
		require.NoError(t, err, "the files can be written")
		if c.fault == "" {
			require.NoError(t, state.Unusable)
		} else {
			require.ErrorContains(t, state.Unusable, c.fault)
		}
		require.Empty(t, state.Former)
		require.NoError(t, unix.Removexattr(l.dir, name))
	}
	require.Equal(t, "10", l.get("memory.min"))
}

// A46: the former value comes back, whatever is written and however often the
// actuator dies, also between two steps, and between a mark and its file.
func TestFormerContentsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mount, err := os.MkdirTemp("", "former")
		require.NoError(t, err)
		defer os.RemoveAll(mount)
		l := newLevel(t, mount)
		former := "10"
		values := rapid.SampledFrom([]string{"0", "10", "20", "30"})
		mark := func(name, value string) {
			err := unix.Setxattr(l.dir, "user.dra.cpumem."+name+".memory.min", []byte(value), unix.XATTR_CREATE)
			if !errors.Is(err, unix.EEXIST) {
				require.NoError(t, err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				want := values.Draw(t, "want")
				if want == l.get("memory.min") {
					// Another program's content that is also wanted looks like
					// this driver's own, whose mark was not written.
					return
				}
				l.bring(contract.Files{"memory.min": want})
				require.Equal(t, want, l.get("memory.min"))
			},
			"die before the file is written": func(*rapid.T) { mark("former", l.get("memory.min")) },
			"die before the content is marked as written": func(t *rapid.T) {
				want := values.Draw(t, "want")
				if want == l.get("memory.min") {
					return // nothing is written
				}
				const written = "user.dra.cpumem.written.memory.min"
				state, err := l.mount.Observe("level", "memory.min")
				require.NoError(t, err)
				l.steps(contract.Files{"memory.min": want}, 1)
				require.NoError(t, unix.Removexattr(l.dir, written))
				if before, known := state.Written["memory.min"]; known {
					require.NoError(t, unix.Setxattr(l.dir, written, []byte(before), 0))
				}
				// The next actuator wants the same.
				l.bring(contract.Files{"memory.min": want})
			},
			"another program": func(t *rapid.T) {
				value := values.Draw(t, "value")
				state, err := l.mount.Observe("level")
				require.NoError(t, err)
				if _, written := state.Written["memory.min"]; len(state.Former) > 0 && (!written || value == state.Written["memory.min"]) {
					return // this driver could have written the content
				}
				l.put("memory.min", value)
				former = value
			},
			"give back": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "die before it is released") {
					l.steps(nil, 1<<10)
				} else {
					l.bring(nil)
				}
				require.Equal(t, former, l.get("memory.min"))
			},
		})
	})
}

// unlisted is a hierarchy whose cgroups do not list their attributes.
type unlisted struct{ cgroups.Hierarchy }

func (u unlisted) Open(dir string) (cgroups.Cgroup, error) {
	c, err := u.Hierarchy.Open(dir)
	return withoutList{c}, err
}

type withoutList struct{ cgroups.Cgroup }

func (withoutList) Attributes() ([]string, error) { return nil, syscall.EIO }

// A file whose marks cannot be read may have a former value, which must not be lost.
func TestMarksThatCannotBeRead(t *testing.T) {
	state, err := cgroups.NewMount(unlisted{plain{"memory.min": "4096"}}).Observe("pod", "memory.min")
	require.NoError(t, err)
	require.ErrorIs(t, state.Unusable, syscall.EIO)
	require.Equal(t, map[string]bool{"memory.min": true}, state.Unreadable)
}

// unmarked is a hierarchy on a kernel without attributes on cgroups.
type unmarked struct{ cgroups.Hierarchy }

func (u unmarked) Open(dir string) (cgroups.Cgroup, error) {
	c, err := u.Hierarchy.Open(dir)
	return withoutAttributes{c}, err
}

type withoutAttributes struct{ cgroups.Cgroup }

func (withoutAttributes) Attributes() ([]string, error)     { return nil, syscall.ENOTSUP }
func (withoutAttributes) Attribute(string) (string, error)  { return "", syscall.ENOTSUP }
func (withoutAttributes) SetAttribute(string, string) error { return syscall.ENOTSUP }
func (withoutAttributes) RemoveAttribute(string) error      { return syscall.ENOTSUP }

// On a kernel without attributes the values are read and written, without marks.
func TestNoMarks(t *testing.T) {
	files := plain{"memory.min": "4096"}
	mount := cgroups.NewMount(unmarked{files})
	for _, act := range []tree.Act{tree.SaveFormer, tree.Write, tree.GiveBack} {
		files["memory.min"] = "4096"
		require.NoError(t, mount.WriteStep(tree.Step{Dir: "pod", Kind: tree.Pod, File: "memory.min", Content: "8192", Found: "4096", Act: act}))
		state, err := mount.Observe("pod", "memory.min")
		require.NoError(t, err)
		require.NoError(t, state.Unusable)
		require.Equal(t, contract.Files{"memory.min": "8192"}, state.Files)
		require.Empty(t, state.Unreadable)
		require.Empty(t, state.Former)
		require.Empty(t, state.Written)
	}
}

// plain is a hierarchy of one cgroup without attributes.
type plain map[string]string

func (p plain) Open(string) (cgroups.Cgroup, error) { return p, nil }
func (plain) Mkdir(string) error                    { return nil }
func (plain) Remove(string) error                   { return nil }
func (plain) Close() error                          { return nil }
func (plain) Children() ([]string, error)           { return nil, nil }
func (plain) Attributes() ([]string, error)         { return nil, nil }
func (plain) Attribute(string) (string, error)      { return "", syscall.ENODATA }
func (plain) SetAttribute(string, string) error     { return nil }
func (plain) RemoveAttribute(string) error          { return nil }
func (p plain) Write(file, content string) error {
	p[file] = content
	return nil
}
func (p plain) Read(file string) ([]byte, error) {
	content, found := p[file]
	if !found {
		return nil, fs.ErrNotExist
	}
	return []byte(content + "\n"), nil
}

func (p plain) OpenFile(name string) (cgroups.File, error) {
	if _, err := p.Read(name); err != nil {
		return nil, err
	}
	return plainFile{p, name}, nil
}

type plainFile struct {
	files plain
	name  string
}

func (f plainFile) Read([]byte) ([]byte, error) { return f.files.Read(f.name) }
func (plainFile) Close() error                  { return nil }
