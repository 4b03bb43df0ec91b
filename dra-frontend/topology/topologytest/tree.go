// SPDX-License-Identifier: Apache-2.0

package topologytest

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/description"
)

// mapFS returns files that a test may change.
func mapFS(files description.Files) fstest.MapFS {
	m := make(fstest.MapFS, len(files))
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data, Mode: 0o444}
	}
	return m
}

// indexed is a MapFS with an index of directories: without it, finding a
// directory or a missing file scans thousands of files.
type indexed struct {
	fstest.MapFS
	dirs map[string][]fs.DirEntry
}

func index(m fstest.MapFS) indexed {
	x := indexed{MapFS: m, dirs: make(map[string][]fs.DirEntry)}
	seen := make(map[string]bool, len(m))
	for name, f := range m {
		mode := f.Mode
		for ; name != "." && !seen[name]; name = path.Dir(name) {
			seen[name] = true
			dir := path.Dir(name)
			x.dirs[dir] = append(x.dirs[dir], fs.FileInfoToDirEntry(named{path.Base(name), mode}))
			mode = fs.ModeDir
		}
	}
	for _, entries := range x.dirs {
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return x
}

func (x indexed) Open(name string) (fs.File, error) {
	if _, found := x.MapFS[name]; !found && x.dirs[name] == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return x.MapFS.Open(name)
}

func (x indexed) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, found := x.dirs[name]
	if !found {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return entries, nil
}

// named describes a file by its name and mode.
type named struct {
	name string
	mode fs.FileMode
}

func (n named) Name() string       { return n.name }
func (n named) Mode() fs.FileMode  { return n.mode }
func (n named) IsDir() bool        { return n.mode.IsDir() }
func (n named) Size() int64        { return 0 }
func (n named) ModTime() time.Time { return time.Time{} }
func (n named) Sys() any           { return nil }
