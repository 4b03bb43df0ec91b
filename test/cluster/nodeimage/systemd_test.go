// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClosure(t *testing.T) {
	needed := map[string][]string{
		"systemd": {"libshared.so", "libc.so.6"}, "busctl": {"libc.so.6"},
		"/lib/libshared.so": {"libz.so.1", "libc.so.6"}, "/lib/libz.so.1": {"libc.so.6", "libshared.so"},
		"/lib/libc.so.6": {"ld.so"}, "/lib/ld.so": nil, "broken": {"libnone.so"},
	}
	needs := func(file string) ([]string, error) {
		names, ok := needed[file]
		if !ok {
			return nil, fmt.Errorf("%s is no program", file)
		}
		return names, nil
	}
	where := func(name string) (string, error) {
		if name == "libnone.so" {
			return "", fs.ErrNotExist
		}
		return "/lib/" + name, nil
	}
	cases := map[string]struct {
		files []string
		want  map[string]string
		say   string
	}{
		"nothing": {want: map[string]string{}},
		"each once, indirect ones too": {files: []string{"systemd", "busctl"}, want: map[string]string{
			"libshared.so": "/lib/libshared.so", "libz.so.1": "/lib/libz.so.1", "libc.so.6": "/lib/libc.so.6", "ld.so": "/lib/ld.so",
		}},
		"missing library": {files: []string{"broken"}, say: "broken needs libnone.so"},
		"no program":      {files: []string{"text"}, say: "libraries of text: text is no program"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := closure(c.files, needs, where)
			if c.say != "" {
				require.ErrorContains(t, err, c.say)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// Packages have a file below usr or at the top. In the node's root both are the same place.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"usr/bin/busctl", "lib/systemd/systemd"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
	}
	for name, want := range map[string]string{"usr/bin/busctl": "usr/bin/busctl", "usr/lib/systemd/systemd": "lib/systemd/systemd"} {
		got, err := find(dir, name)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, want), got)
	}
	_, err := find(dir, "usr/bin/none")
	require.ErrorContains(t, err, "usr/bin/none")
}

// The node does not have systemd's own units, so its units have no default dependencies and name only each other.
func TestUnits(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, addUnits(root))
	require.FileExists(t, filepath.Join(root, "etc/systemd/system.conf"))
	units, err := filepath.Glob(filepath.Join(root, "etc/systemd/system/*"))
	require.NoError(t, err)
	names := regexp.MustCompile(`[a-z]+\.(service|socket|target)`)
	for _, u := range units {
		data, err := os.ReadFile(u)
		require.NoError(t, err)
		require.Contains(t, string(data), "\n[Unit]\nDefaultDependencies=no\n"[1:], u)
		for line := range strings.Lines(string(data)) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			for _, name := range names.FindAllString(line, -1) {
				require.FileExists(t, filepath.Join(root, "etc/systemd/system", name), u)
			}
		}
	}
}
