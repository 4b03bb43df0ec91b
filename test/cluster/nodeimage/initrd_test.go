// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModuleOrder(t *testing.T) {
	const dep = `kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko: kernel/lib/crc16.ko
kernel/lib/crc16.ko:
kernel/net/9p.ko.xz: kernel/lib/crc16.ko
`
	cases := map[string]struct {
		want    []string
		builtin map[string]bool
		order   []string
		say     string
	}{
		"dependencies first, each once": {
			want:  []string{"ext4", "9p", "jbd2"},
			order: []string{"kernel/lib/crc16.ko", "kernel/fs/jbd2/jbd2.ko", "kernel/fs/ext4/ext4.ko", "kernel/net/9p.ko.xz"},
		},
		"without what is built in": {
			want: []string{"ext4"}, builtin: map[string]bool{"crc16": true, "jbd2": true},
			order: []string{"kernel/fs/ext4/ext4.ko"},
		},
		"without what this kernel does not need": {
			want: []string{"crc32c_generic", "9p"}, order: []string{"kernel/lib/crc16.ko", "kernel/net/9p.ko.xz"},
		},
		"unknown module": {want: []string{"xfs"}, say: "no module xfs"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			order, err := moduleOrder(strings.NewReader(dep), c.want, c.builtin)
			if c.say != "" {
				require.ErrorContains(t, err, c.say)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.order, order)
		})
	}
	_, err := moduleOrder(strings.NewReader("no colon here\n"), nil, nil)
	require.ErrorContains(t, err, "has no colon")
}

func TestWriteCPIO(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, writeCPIO(&buf, []entry{
		{name: "bin", mode: modeDir},
		{name: "bin/a", mode: modeFile, data: []byte("12345")},
		{name: "init", mode: modeFile, data: []byte("x")},
	}))
	// Header fields by hand: magic, inode 2, regular 0755, ids 0, one link, time 0, size 5, devices 0, name size 6.
	require.Contains(t, buf.String(), "070701"+"00000002"+"000081ed"+"00000000"+"00000000"+"00000001"+"00000000"+"00000005"+
		strings.Repeat("00000000", 4)+"00000006"+"00000000"+"bin/a\x00"+"12345\x00\x00\x00")
	require.Zero(t, buf.Len()%4)
	require.True(t, strings.HasSuffix(strings.TrimRight(buf.String(), "\x00"), "TRAILER!!!"))
}

func TestScriptsParse(t *testing.T) {
	for _, name := range append([]string{"initrd-init"}, scripts...) {
		t.Run(name, func(t *testing.T) {
			script, err := files.ReadFile("files/" + name)
			require.NoError(t, err)
			sh := exec.Command("sh", "-n")
			sh.Stdin = bytes.NewReader(script)
			out, err := sh.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
}
