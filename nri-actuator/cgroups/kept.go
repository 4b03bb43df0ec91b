// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// maxKept bounds the files that stay open. It is above the number of files of 500 containers with claims. An open file takes
// about 5 KiB of the kernel's memory, which the kernel charges to the process.
const maxKept = 8192

// kept are open files, by the cgroup's directory and the file's name. A read of one is one system call, where a
// read by name takes five. A read gives what the kernel has at that moment, as a read by name does (I1).
type kept struct {
	// closed is set when the mount is closed. From then on nothing is read.
	closed atomic.Bool
	// mu is held during a read, so that no descriptor is closed meanwhile.
	mu    sync.Mutex
	files map[string]map[string]*keptFile
	n     int
	// most bounds n.
	most   int
	buffer [shortFile]byte
}

// keptFile is an open file. last is the content of the last read. A read that finds the same content returns last and allocates
// nothing; last is never an answer without a read.
type keptFile struct {
	File
	last string
}

// newKept bounds the open files by half of the descriptors that the process may have: the other half is for other files and for
// connections.
func newKept() *kept {
	k := &kept{files: make(map[string]map[string]*keptFile)}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		k.most = int(min(maxKept, limit.Cur/2))
	}
	return k
}

// ReadKept is Read for a file that is read again and again: the file stays open until CloseExcept, unless too many are open.
func (m *Mount) ReadKept(dir, file string) (string, error) {
	if content, read := m.kept.read(dir, file); read {
		return content, nil
	}
	contents, err := m.KeptContents(dir, file)
	if err != nil {
		return "", err
	}
	content, exists := contents[file]
	if !exists {
		return "", m.explain(dir, file, fs.ErrNotExist)
	}
	return content, nil
}

// KeptContents returns the contents of those of the files that exist. It reads no marks. As with ReadKept, the files stay open.
func (m *Mount) KeptContents(dir string, files ...string) (contract.Files, error) {
	contents := make(contract.Files, len(files))
	var unread []string
	for _, file := range files {
		if content, read := m.kept.read(dir, file); read {
			contents[file] = content
		} else {
			unread = append(unread, file)
		}
	}
	if len(unread) == 0 {
		return contents, nil
	}
	d, err := m.open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for _, file := range unread {
		content, err := m.kept.open(d, dir, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, m.explain(dir, file, err)
		}
		if err == nil {
			contents[file] = content
		}
	}
	return contents, nil
}

// CloseExcept closes the kept files of each cgroup for which stays returns false.
func (m *Mount) CloseExcept(stays func(dir string) bool) {
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	for dir := range m.kept.files {
		if !stays(dir) {
			m.kept.forget(dir)
		}
	}
}

// read returns the content of a file that is open. read is false for other files, and after an error: the
// cgroup may have been removed and made again, so the files are closed and must be looked up by name.
func (k *kept) read(dir, file string) (content string, read bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[dir][file]
	if f == nil || k.closed.Load() {
		return "", false
	}
	data, err := f.Read(k.buffer[:])
	if err != nil {
		k.forget(dir)
		return "", false
	}
	if data = bytes.TrimSpace(data); string(data) != f.last {
		f.last = string(data)
	}
	return f.last, true
}

// open opens a file of the open cgroup d, and returns its content.
func (k *kept) open(d Cgroup, dir, file string) (content string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := d.OpenFile(file)
	if err != nil {
		return "", err
	}
	data, err := f.Read(k.buffer[:])
	content = trim(data)
	if err != nil || k.n >= k.most || k.files[dir][file] != nil {
		return content, errors.Join(err, f.Close())
	}
	if k.files[dir] == nil {
		k.files[dir] = make(map[string]*keptFile)
	}
	k.files[dir][file] = &keptFile{f, content}
	k.n++
	return content, nil
}

// forget closes the files of a cgroup. They were only read, so nothing is lost if one cannot be closed.
func (k *kept) forget(dir string) {
	for _, f := range k.files[dir] {
		_ = f.Close()
		k.n--
	}
	delete(k.files, dir)
}

// close closes all files. If a read does not return, the files stay open until the process ends.
func (k *kept) close() {
	k.closed.Store(true)
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	for dir := range k.files {
		k.forget(dir)
	}
}
