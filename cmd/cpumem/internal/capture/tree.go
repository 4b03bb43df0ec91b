// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// tree is a read-only file system in memory.
type tree struct {
	files map[string][]byte
	// dirs maps a directory to the names in it.
	dirs map[string][]string
}

func newTree() *tree {
	return &tree{files: make(map[string][]byte), dirs: map[string][]string{".": nil}}
}

func (t *tree) addFile(name string, data []byte) error {
	if _, found := t.files[name]; found {
		return errTwice
	}
	if _, found := t.dirs[name]; found {
		return errConflict
	}
	if err := t.addDir(path.Dir(name)); err != nil {
		return err
	}
	t.files[name] = data
	return t.enter(name)
}

// addDir adds the directory and its ancestors.
func (t *tree) addDir(name string) error {
	if _, found := t.dirs[name]; found {
		return nil
	}
	if _, found := t.files[name]; found {
		return errConflict
	}
	if err := t.addDir(path.Dir(name)); err != nil {
		return err
	}
	t.dirs[name] = nil
	return t.enter(name)
}

// enter puts the name into its directory. Directories count although the
// archive need not name them.
func (t *tree) enter(name string) error {
	if len(t.files)+len(t.dirs) > maxEntries {
		return errEntries
	}
	dir := path.Dir(name)
	t.dirs[dir] = append(t.dirs[dir], path.Base(name))
	return nil
}

// Open implements fs.FS.
func (t *tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if data, found := t.files[name]; found {
		return &file{Reader: bytes.NewReader(data), info: t.info(name)}, nil
	}
	if _, found := t.dirs[name]; found {
		entries, _ := t.ReadDir(name)
		return &directory{info: t.info(name), left: entries}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	names, found := t.dirs[name]
	if !found {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	entries := make([]fs.DirEntry, 0, len(names))
	for _, n := range names {
		entries = append(entries, fs.FileInfoToDirEntry(t.info(path.Join(name, n))))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (t *tree) info(name string) info {
	data, isFile := t.files[name]
	return info{name: path.Base(name), size: int64(len(data)), dir: !isFile}
}

// info describes a file or a directory.
type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Unix(0, 0) }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type file struct {
	*bytes.Reader
	info info
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

type directory struct {
	info info
	left []fs.DirEntry
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *directory) Close() error               { return nil }
func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.left)
	} else if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	out := d.left[:n]
	d.left = d.left[n:]
	return out, nil
}
