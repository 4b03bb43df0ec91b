// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLacking(t *testing.T) {
	whole := host{arch: "amd64", release: "NAME=Debian\nID=debian\n", memoryMiB: neededMemory, diskMiB: neededDisk}
	require.Empty(t, whole.lacking())
	for name, c := range map[string]struct {
		change func(*host)
		want   []string
	}{
		"not root":         {func(h *host) { h.uid = 1000 }, []string{"user id 1000"}},
		"another system":   {func(h *host) { h.release = "ID=ubuntu\nID_LIKE=debian\n" }, []string{"no Debian"}},
		"no go":            {func(h *host) { h.goProgram = fs.ErrNotExist }, []string{"no `go` in PATH"}},
		"no tun":           {func(h *host) { h.tun = fs.ErrNotExist }, []string{"/dev/net/tun"}},
		"little memory":    {func(h *host) { h.memoryMiB-- }, []string{"5119 MiB of memory"}},
		"little disk":      {func(h *host) { h.diskMiB-- }, []string{"10239 MiB are free"}},
		"built, less disk": {func(h *host) { h.diskMiB, h.built = builtDisk, true }, nil},
		"all at once": {
			func(h *host) {
				*h = host{uid: 1, arch: "arm64", goProgram: fs.ErrNotExist, tun: fs.ErrNotExist}
			},
			[]string{"user id 1", "no Debian", "this machine is arm64", "no `go`", "/dev/net/tun", "0 MiB of memory", "0 MiB are free"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := whole
			c.change(&h)
			lacking := h.lacking()
			require.Len(t, lacking, len(c.want))
			for i, want := range c.want {
				require.ErrorContains(t, errors.Join(lacking[i]), want)
			}
		})
	}
}
