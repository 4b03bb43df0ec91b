// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A machine has gaps in its ids, nodes without memory, and page sizes of its own.
func TestMachine(t *testing.T) {
	k := New(Linux612, Machine{
		CPUs: []int{0, 80, 511}, Nodes: []int{0, 8}, MemoryNodes: []int{8}, PageSize: 64 << 10, HugepageSizes: []int64{16 << 20},
	})
	require.NoError(t, k.Write("", "cgroup.subtree_control", "+cpuset +memory +hugetlb"))
	require.NoError(t, k.Mkdir("a"))
	for _, c := range []struct {
		file, content, want string
		err                 error
	}{
		{file: "cpuset.cpus", content: "80,511", want: "80,511"},
		{file: "cpuset.cpus", content: "1", err: syscall.EINVAL},
		{file: "cpuset.cpus", content: "512", err: ErrOutside},
		{file: "cpuset.mems", content: "0,8", want: "0,8"},
		{file: "cpuset.mems", content: "1", err: syscall.EINVAL},
		{file: "memory.min", content: "65537", want: "65536"},
		{file: "hugetlb.16MB.max", content: "16777217", want: "16777216"},
		{file: "hugetlb.2MB.max", content: "0", err: syscall.ENOENT},
	} {
		require.ErrorIs(t, k.Write("a", c.file, c.content), c.err, "%s %q", c.file, c.content)
		if c.err == nil {
			require.Equal(t, c.want, read(t, k, "a", c.file), "%s %q", c.file, c.content)
		}
	}
	require.Equal(t, "80,511", read(t, k, "a", "cpuset.cpus.effective"))
	require.Equal(t, "8", read(t, k, "a", "cpuset.mems.effective"))
	require.NoError(t, k.SetOnline(511, false))
	require.Equal(t, "80", read(t, k, "a", "cpuset.cpus.effective"))
}
