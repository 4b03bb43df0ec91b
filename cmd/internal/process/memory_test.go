// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A daemon's memory is not in huge pages, even on a node where all programs get them.
func TestNoHugePages(t *testing.T) {
	var status []byte
	require.NoError(t, Run(t.Context(), zap.NewNop(), Server{Address: "127.0.0.1:0"}, func(context.Context) (err error) {
		status, err = os.ReadFile("/proc/self/status")
		return err
	}))
	require.Contains(t, string(status), "THP_enabled:\t0\n")
}

// written is in a page of the program's file that the process can write.
var written = "by the linker"

func TestDropProgram(t *testing.T) {
	written = "by the test"
	before := ofFiles(t)
	require.NoError(t, dropProgram())
	require.Less(t, ofFiles(t), before)
	require.Equal(t, "by the test", written)
}

func TestUnwritten(t *testing.T) {
	const smaps = `00400000-01440000 r-xp 00000000 fe:01 42                         /bin/daemon
Size:              16640 kB
Rss:               12208 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
01440000-024e0000 r--p 01040000 fe:01 42                         /bin/daemon
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
024e0000-024e4000 r--p 020e0000 fe:01 42                         /bin/daemon
Anonymous:             4 kB
Swap:                  0 kB
VmFlags: rd mr mw me
024e4000-024e8000 r--p 020e4000 fe:01 42                         /bin/daemon
Anonymous:             0 kB
Swap:                  4 kB
VmFlags: rd mr mw me
024e8000-02579000 rw-p 020e8000 fe:01 42                         /bin/daemon
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me
02579000-07610000 rw-p 00000000 00:00 0
Anonymous:          5604 kB
Swap:                  0 kB
VmFlags: rd wr mr mw me
7f0000000000-7f0000001000 r--p 00000000 fe:01 43                 /bin/other
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me
7fff00000000-7fff00001000 r-xp 00000000 00:00 0                  [vdso]
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
`
	require.Equal(t, []mapping{{0x400000, 0x1440000}, {0x1440000, 0x24e0000}}, unwritten(smaps, "/bin/daemon"))
}

// ofFiles returns how many KiB of files are in the memory of this process. Go's test program may be in a tmpfs.
func ofFiles(t *testing.T) (sum int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		var n int
		if name, value, _ := strings.Cut(line, ":"); name == "RssFile" || name == "RssShmem" {
			_, err := fmt.Sscan(value, &n)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}
