// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

// A directory is opened in two ways, by the kernel's release. Both read the same and end at
// the mount. Plain files stand for cgroupfs, which needs a machine's root.
func TestOpen(t *testing.T) {
	mount, outside := t.TempDir(), t.TempDir()
	write := func(name, content string) {
		file := filepath.Join(mount, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	write("kubepods/pod/cpuset.cpus", "0-3\n")
	write("kubepods/pod/long", strings.Repeat("x", maxFile+7))
	numbers := func(length int) string { // content that differs from place to place
		var text strings.Builder
		for i := 0; text.Len() < length; i++ {
			fmt.Fprintln(&text, i)
		}
		return text.String()[:length]
	}
	lengths := []int{shortFile - 1, shortFile, shortFile + 1, maxFile}
	for _, n := range lengths {
		write(fmt.Sprintf("kubepods/pod/%d", n), numbers(n))
	}
	write("kubepods/pod/b/cgroup.procs", "")
	write("kubepods/pod/a/cgroup.procs", "")
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(mount, "kubepods/link")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(mount, "kubepods/pod/secret")))
	m, err := openMounted(mount)
	require.NoError(t, err)
	defer m.Close()
	for name, open := range map[string]func(string) (Cgroup, error){"one call": m.Open, "by parts": m.openByParts} {
		t.Run(name, func(t *testing.T) {
			c, err := open("kubepods/pod")
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			read := func(file string) string {
				content, err := c.Read(file)
				require.NoError(t, err)
				return string(content)
			}
			require.Equal(t, "0-3\n", read("cpuset.cpus"))
			require.Len(t, read("long"), maxFile, "the first 64 KiB")
			for _, n := range lengths {
				require.Equal(t, numbers(n), read(strconv.Itoa(n)))
			}
			children, err := c.Children()
			require.NoError(t, err)
			require.Equal(t, []string{"a", "b"}, children)
			require.NoError(t, c.Write("cpuset.cpus", "7\n"))
			require.Equal(t, "7\n", read("cpuset.cpus"))
			require.NoError(t, c.Write("cpuset.cpus", "0-3\n"))
			for _, file := range []string{"secret", "absent"} {
				_, err = c.Read(file)
				require.Error(t, err, file)
			}
			require.Error(t, c.Write("secret", "overwritten"))

			_, err = open("kubepods/absent")
			require.True(t, errors.Is(err, fs.ErrNotExist), "%v", err)
			for _, dir := range []string{"kubepods/link", "../" + filepath.Base(outside)} {
				_, err = open(dir)
				require.Error(t, err, "%s leads out of the mount", dir)
			}
		})
	}
	_, err = openMounted(filepath.Join(mount, "absent"))
	require.Error(t, err)
}

// Where the kernel or a seccomp profile does not know the one call, a cgroup is opened by parts.
func TestOpenWithoutOpenat2(t *testing.T) {
	m, err := openMounted(t.TempDir())
	require.NoError(t, err)
	defer m.Close()
	for name, c := range map[string]struct{ errno, want error }{
		"Linux before 5.6":       {unix.ENOSYS, nil},
		"an old seccomp profile": {unix.EPERM, nil},
		"another error":          {unix.EMFILE, unix.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, contracttest.Failing(t, unix.SYS_OPENAT2, c.errno.(unix.Errno), func(fail func()) error {
				fail()
				opened, err := m.Open(".")
				if err != nil {
					return err
				}
				return opened.Close()
			}), c.want)
		})
	}
}
