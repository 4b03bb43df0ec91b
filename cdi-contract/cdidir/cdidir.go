// SPDX-License-Identifier: Apache-2.0

// Package cdidir is the CDI directory for all its readers and writers: the frontend,
// the actuator, the guard's installation and the operator's tool. The announcement is the
// exception, because its open file carries a lock: package announcement writes it, and
// package contract reads it. Writes are durable,
// reads are bounded, and changes are reported. Nothing is kept between calls, so calls
// succeed again as soon as a directory that was unmounted, full or read-only is
// usable.
package cdidir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// Dir is a CDI directory.
type Dir struct{ path string }

// fileMode keeps decisions from unprivileged users of the host. Runtimes that
// read CDI files run as root.
const fileMode = 0o600

// At returns the directory at path, which may be absent.
func At(path string) Dir { return Dir{path: path} }

// Open returns the directory at path, and creates it if it is absent.
func Open(path string) (Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return Dir{}, fmt.Errorf("CDI directory: %w", err)
	}
	return At(path), nil
}

// String returns the directory's path.
func (d Dir) String() string { return d.path }

// RemoveStale removes the unfinished files of killed frontends. Only the active
// instance may call it.
func (d Dir) RemoveStale() error {
	return atomicfile.RemoveStale(d.path, func(name string) bool {
		_, claim := contract.ClaimUIDOfFile(name)
		return claim || name == contract.NodeFile
	})
}

// List returns the entries of the directory.
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

// Stat returns an entry of the directory, as List does.
func (d Dir) Stat(name string) (fs.FileInfo, error) { return os.Lstat(d.Path(name)) }

// Read returns the content of a file.
func (d Dir) Read(name string) ([]byte, error) {
	return atomicfile.Read(d.path, name, contract.MaxFileSize)
}

// ReadNew is Read with the file's identity. It returns no content if the identity is
// the known one.
func (d Dir) ReadNew(name string, known Identity) ([]byte, Identity, error) {
	path := d.Path(name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, Identity{}, err
	}
	if id := Identify(info); id == known {
		return nil, id, nil
	}
	// The file may have been replaced since.
	f, info, err := atomicfile.Open(path)
	if err != nil {
		return nil, Identity{}, err
	}
	defer f.Close()
	data, err := atomicfile.ReadAll(f, contract.MaxFileSize)
	return data, Identify(info), err
}

// Write replaces a file.
func (d Dir) Write(name string, data []byte) error {
	return atomicfile.Write(d.path, name, data, fileMode)
}

// Remove removes a file. An absent file is no error.
func (d Dir) Remove(name string) error { return atomicfile.Remove(d.path, name) }

// Path returns a file's path.
func (d Dir) Path(name string) string { return filepath.Join(d.path, name) }

// CheckWritable returns an error if no file can be created in the directory.
func (d Dir) CheckWritable() error {
	// RemoveStale removes a file of this name if a crash leaves it behind.
	f, err := os.CreateTemp(d.path, "."+contract.NodeFile+".tmp-*")
	if err != nil {
		return fmt.Errorf("CDI directory %s is not writable: %w", d.path, err)
	}
	err = os.Remove(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		// In a rolling update the other instance's RemoveStale may have removed
		// the file.
		err = nil
	}
	return errors.Join(f.Close(), err)
}
