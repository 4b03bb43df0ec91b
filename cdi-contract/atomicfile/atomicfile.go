// SPDX-License-Identifier: Apache-2.0

// Package atomicfile replaces and removes files of the CDI directory and of the
// frontend's data directory. A reader sees the old content or the new content, also
// after a crash. Both daemons write through this package.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tempMark is part of the name of a file that is being written. The name begins
// with a dot and has no extension of a CDI file. The file is in the directory
// itself: runtimes notice a new file only by a rename within the directory.
const tempMark = ".tmp-"

// Write replaces the file dir/name with data.
func Write(dir, name string, data []byte, mode fs.FileMode) error {
	f, err := WriteHeld(dir, name, data, mode, func(*os.File) error { return nil })
	if err != nil {
		return err
	}
	return f.Close()
}

// WriteHeld replaces the file dir/name with data and returns the open file.
// before runs after the content is on disk and before the rename. A lock that
// before takes is in place when a reader first sees the file.
func WriteHeld(dir, name string, data []byte, mode fs.FileMode, before func(*os.File) error) (_ *os.File, err error) {
	f, err := os.CreateTemp(dir, "."+name+tempMark+"*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), ignoreAbsent(os.Remove(f.Name())))
		}
	}()
	if _, err = f.Write(data); err != nil {
		return nil, err
	}
	if err = f.Chmod(mode); err != nil {
		return nil, err
	}
	if err = f.Sync(); err != nil {
		return nil, fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	if err = before(f); err != nil {
		return nil, err
	}
	if err = os.Rename(f.Name(), filepath.Join(dir, name)); err != nil {
		return nil, err
	}
	if err = SyncDir(dir); err != nil {
		return nil, err
	}
	return f, nil
}

// ErrNotRegular means that a path names a directory, a FIFO or a device.
var ErrNotRegular = errors.New("not a regular file")

// Open opens the regular file at path for reading. Every other kind of file is
// [ErrNotRegular]: a FIFO would block its reader until a writer opens it.
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w (%s): remove it", path, ErrNotRegular, info.Mode().Type())
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// Read returns the content of the regular file dir/name. More than max bytes
// are an error.
func Read(dir, name string, max int64) ([]byte, error) {
	f, _, err := Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, max)
}

// ReadAll returns the content of an open file. More than max bytes are an error.
func ReadAll(f *os.File, max int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	// With room for the whole file, one read has it, and the next read finds its end.
	content.Grow(int(min(info.Size(), max)) + bytes.MinRead)
	if _, err := content.ReadFrom(io.LimitReader(f, max+1)); err != nil {
		return nil, err
	}
	if int64(content.Len()) > max {
		return nil, fmt.Errorf("%s is larger than %d bytes", f.Name(), max)
	}
	return content.Bytes(), nil
}

// Remove removes the file dir/name. An absent file is no error.
func Remove(dir, name string) error {
	if err := ignoreAbsent(os.Remove(filepath.Join(dir, name))); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes renames and removals in dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// ErrReplaced means that a directory was removed while a mount shows it.
// Writing to it is impossible, and a new directory in its place is invisible
// until the mount is made again.
var ErrReplaced = errors.New("the directory was removed from the host while it is mounted here; " +
	"the program must be started again to see the new one")

// CheckDir returns [ErrReplaced] if dir was removed under its mount, and the
// error of stat if it fails.
func CheckDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		return fmt.Errorf("%s: %w", dir, ErrReplaced)
	}
	return nil
}

// RemoveStale removes unfinished files that dead writers left. mine reports
// whether the caller is the only writer of the file name; all other files stay.
func RemoveStale(dir string, mine func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), ".")
		if !ok {
			continue
		}
		if name, _, ok = strings.Cut(name, tempMark); !ok || !mine(name) {
			continue
		}
		if err := ignoreAbsent(os.Remove(filepath.Join(dir, e.Name()))); err != nil {
			return err
		}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
