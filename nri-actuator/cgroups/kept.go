// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"errors"
	"io/fs"
	"sync"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// maxKept bounds the files that stay open. An open file takes about 5 KiB of the kernel's memory, which the kernel
// charges to the process.
const maxKept = 4096

// kept are open files, by the cgroup's directory and the file's name. A read of one is one system call, where a
// read by name takes five. A read gives what the kernel has at that moment, as a read by name does (I1).
type kept struct {
	// mu is held during a read, so that no descriptor is closed meanwhile.
	mu    sync.Mutex
	files map[string]map[string]File
	n     int
}

// ReadKept is Read for a file that is read again and again: the file stays open until CloseExcept.
func (m *Mount) ReadKept(dir, file string) (string, error) {
	if content, read := m.kept.read(dir, file); read {
		return content, nil
	}
	d, err := m.open(dir)
	if err != nil {
		return "", err
	}
	defer d.Close()
	content, err := m.kept.open(d, dir, file)
	if err != nil {
		return "", m.explain(dir, file, err)
	}
	return content, nil
}

// KeptContents is Contents for files that are read again and again.
func (m *Mount) KeptContents(dir string, files ...string) (contract.Files, error) {
	contents := make(contract.Files, len(files))
	for _, file := range files {
		content, err := m.ReadKept(dir, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			contents[file] = content
		}
	}
	return contents, nil
}

// CloseExcept closes the files that stay open, except those of the cgroups for which stays is true.
func (m *Mount) CloseExcept(stays func(dir string) bool) {
	m.kept.mu.Lock()
	defer m.kept.mu.Unlock()
	for dir := range m.kept.files {
		if !stays(dir) {
			_ = m.kept.forget(dir)
		}
	}
}

// read returns the content of a file that is open. read is false for other files, and after an error: the
// cgroup may have been removed and made again, so the files are closed and must be looked up by name.
func (k *kept) read(dir, file string) (content string, read bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[dir][file]
	if f == nil {
		return "", false
	}
	data, err := f.Read()
	if err != nil {
		_ = k.forget(dir)
		return "", false
	}
	return trim(data), true
}

// open opens a file of the open cgroup d, and returns its content.
func (k *kept) open(d Cgroup, dir, file string) (content string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f, err := d.OpenFile(file)
	if err != nil {
		return "", err
	}
	data, err := f.Read()
	if err != nil || k.n >= maxKept {
		return trim(data), errors.Join(err, f.Close())
	}
	if k.files[dir] == nil {
		k.files[dir] = make(map[string]File)
	}
	k.files[dir][file] = f
	k.n++
	return trim(data), nil
}

// forget closes the files of a cgroup.
func (k *kept) forget(dir string) error {
	var errs []error
	for _, f := range k.files[dir] {
		errs = append(errs, f.Close())
		k.n--
	}
	delete(k.files, dir)
	return errors.Join(errs...)
}

// close closes all files. If a read does not return, its process ends without.
func (k *kept) close() error {
	if !k.mu.TryLock() {
		return nil
	}
	defer k.mu.Unlock()
	var errs []error
	for dir := range k.files {
		errs = append(errs, k.forget(dir))
	}
	return errors.Join(errs...)
}
