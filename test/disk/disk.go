// SPDX-License-Identifier: Apache-2.0

// Package disk is a model of what a power loss leaves of files. It knows the operations by
// which package atomicfile writes and removes a file. Its tests trace the system calls of
// both daemons' writers, and start the writers again on all that a power loss can leave.
// Package explore runs both daemons on it.
package disk

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Operation is an operation on a file or a directory.
type Operation struct {
	Kind Kind
	Path string
	// To is the new path of a renamed file.
	To string
	// Data is what is written at the file's end.
	Data string
}

// Kind is what an operation does.
type Kind string

// The kinds of operations. Sync makes a file's content durable, SyncDirectory the names in
// a directory.
const (
	Create        Kind = "create"
	Write         Kind = "write"
	Sync          Kind = "sync"
	Rename        Kind = "rename"
	Unlink        Kind = "unlink"
	SyncDirectory Kind = "sync directory"
)

// Temporary is the end of the name of a file that is being written.
const Temporary = ".tmp-1"

// Replacement returns the operations by which package atomicfile replaces a file.
func Replacement(name, data string) []Operation {
	temporary := path.Join(path.Dir(name), "."+path.Base(name)+Temporary)
	return []Operation{
		{Kind: Create, Path: temporary},
		{Kind: Write, Path: temporary, Data: data},
		{Kind: Sync, Path: temporary},
		{Kind: Rename, Path: temporary, To: name},
		{Kind: SyncDirectory, Path: path.Dir(name)},
	}
}

// Removal returns the operations by which package atomicfile removes a file.
func Removal(name string) []Operation {
	return []Operation{{Kind: Unlink, Path: name}, {Kind: SyncDirectory, Path: path.Dir(name)}}
}

// Files are contents by path.
type Files map[string]string

// Disk has the files of a file system.
type Disk struct {
	// names has for each path the files that a power loss may leave there, nil for no file.
	// The last one is there now.
	names map[string][]*file
}

// file is a file, whatever its names.
type file struct {
	content string
	// durable is the part of the content that a power loss leaves.
	durable string
}

// New returns a disk on which the files are durable.
func New(files Files) *Disk {
	d := &Disk{names: make(map[string][]*file)}
	for name, content := range files {
		d.names[name] = []*file{{content: content, durable: content}}
	}
	return d
}

// Do does an operation. A file that is not there is left alone.
func (d *Disk) Do(o Operation) {
	if o.Kind == Create {
		d.name(o.Path, &file{})
		return
	}
	if o.Kind == SyncDirectory {
		for name, files := range d.names {
			if path.Dir(name) == o.Path {
				d.names[name] = files[len(files)-1:]
			}
		}
		return
	}
	f := d.now(o.Path)
	if f == nil {
		return
	}
	switch o.Kind {
	case Write:
		f.content += o.Data
	case Sync:
		f.durable = f.content
	case Rename:
		d.name(o.To, f)
		d.name(o.Path, nil)
	case Unlink:
		d.name(o.Path, nil)
	}
}

// name puts a file at a path, nil for no file.
func (d *Disk) name(path string, f *file) {
	if d.names[path] == nil {
		d.names[path] = []*file{nil}
	}
	d.names[path] = append(d.names[path], f)
}

func (d *Disk) now(path string) *file {
	files := d.names[path]
	if len(files) == 0 {
		return nil
	}
	return files[len(files)-1]
}

// Now returns the files as programs see them.
func (d *Disk) Now() Files {
	files := make(Files)
	for name := range d.names {
		if f := d.now(name); f != nil {
			files[name] = f.content
		}
	}
	return files
}

// AfterPowerLoss returns all that a power loss can leave, each once: POSIX promises what
// was synchronised, and nothing about the rest. Each name has the file that it had at the
// last synchronisation of its directory, or one that it has had since. Of a file's content,
// what was written since its last synchronisation is there, or is missing, or half of it is
// missing, or zeros are in its place.
func (d *Disk) AfterPowerLoss() []Files {
	var all []Files
	known := make(map[string]bool)
	d.leave(slices.Sorted(maps.Keys(d.names)), make(Files), make(map[*file]string), func(left Files) {
		if key := fmt.Sprint(left); !known[key] {
			known[key] = true
			all = append(all, maps.Clone(left))
		}
	})
	return all
}

// leave calls found with each choice of files for the names, beside the names in left.
// contents are the contents that were chosen for files.
func (d *Disk) leave(names []string, left Files, contents map[*file]string, found func(Files)) {
	if len(names) == 0 {
		found(left)
		return
	}
	name, names := names[0], names[1:]
	for _, f := range d.names[name] {
		if f == nil {
			delete(left, name)
			d.leave(names, left, contents, found)
			continue
		}
		content, chosen := contents[f]
		choices := []string{content}
		if !chosen {
			choices = f.afterPowerLoss()
		}
		for _, content := range choices {
			contents[f], left[name] = content, content
			d.leave(names, left, contents, found)
		}
		if !chosen {
			delete(contents, f)
		}
	}
	delete(left, name)
}

func (f *file) afterPowerLoss() []string {
	written := strings.TrimPrefix(f.content, f.durable)
	if written == "" {
		return []string{f.content}
	}
	return []string{f.durable, f.durable + written[:len(written)/2], f.durable + strings.Repeat("\x00", len(written)), f.content}
}
