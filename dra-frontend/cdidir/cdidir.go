// SPDX-License-Identifier: Apache-2.0

// Package cdidir is the frontend's edge to the CDI directory: durable writes
// and bounded reads. Nothing is kept between calls, so a directory that was
// unmounted, full or read-only works again as soon as it does.
package cdidir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/durable"
)

// Dir is a CDI directory.
type Dir struct{ path string }

// fileMode keeps decisions from unprivileged users of the host; runtimes that
// read CDI files run as root.
const fileMode = 0o600

// Open prepares the directory for the one frontend that writes to it: it is
// created if absent, and what a killed writer left behind is removed.
func Open(path string) (Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Dir{}, err
	}
	return Dir{path: path}, nil
}

// RemoveStale removes unfinished files of a frontend that was killed. Only the
// instance that is about to write may call it.
func (d Dir) RemoveStale() error {
	return durable.RemoveStale(d.path, func(name string) bool {
		_, claim := contract.ClaimUIDOfFile(name)
		return claim || name == contract.NodeFile
	})
}

// List returns the directory's entries.
func (d Dir) List() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	infos := make([]fs.FileInfo, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Read returns the content of a file.
func (d Dir) Read(name string) ([]byte, error) {
	return durable.Read(d.path, name, contract.MaxFileSize)
}

// Write replaces a file.
func (d Dir) Write(name string, data []byte) error {
	return durable.Write(d.path, name, data, fileMode)
}

// Remove removes a file; an absent one is success.
func (d Dir) Remove(name string) error { return durable.Remove(d.path, name) }

// Path returns a file's path.
func (d Dir) Path(name string) string { return filepath.Join(d.path, name) }

// CheckWritable tries a write, for a clear message at start.
func (d Dir) CheckWritable() error {
	// Named like an unfinished node file, which RemoveStale takes away.
	f, err := os.CreateTemp(d.path, "."+contract.NodeFile+".tmp-*")
	if err != nil {
		return fmt.Errorf("CDI directory %s is not writable: %w", d.path, err)
	}
	err = os.Remove(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		// The other instance of a rolling update took it for a leftover.
		err = nil
	}
	return errors.Join(f.Close(), err)
}
