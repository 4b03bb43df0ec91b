// SPDX-License-Identifier: Apache-2.0

package topology

import "io/fs"

// MemoryTotal returns the machine's memory in bytes, from the file system
// /proc. Kubelet takes the node's memory capacity from the same line.
func MemoryTotal(proc fs.FS) (int64, error) {
	return memTotal(source{fsys: proc, name: "procfs"}, "meminfo")
}
