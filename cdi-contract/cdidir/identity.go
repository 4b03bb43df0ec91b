// SPDX-License-Identifier: Apache-2.0

package cdidir

import (
	"io/fs"
	"syscall"
)

// Identity distinguishes two contents of one name: files are replaced by rename and
// never written in place. The zero value is no file's identity.
type Identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// Identify returns the identity of a file. A file that is in no file system has
// its size and its time only.
func Identify(info fs.FileInfo) Identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{size: info.Size(), mtime: syscall.NsecToTimespec(info.ModTime().UnixNano())}
	}
	return Identity{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}
}
