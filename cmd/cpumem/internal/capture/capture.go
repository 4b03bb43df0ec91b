// SPDX-License-Identifier: Apache-2.0

// Package capture puts a machine into a file: the files of /sys and /proc that
// package topology reads, so that a bug report, a test and a simulation see
// what the driver saw. topology.Discover reads a machine of [Open] as it read
// the original.
//
// A capture is a gzipped tar archive of manifest.json, sys/... and proc/...,
// and of config.yaml if the frontend's configuration was captured. No list
// decides which files it has: the reader runs over a file system that records
// every file that is opened and every name that is listed. A machine that the
// reader refuses can be captured, up to the file that the reader refuses.
//
// A capture names neither the machine nor its owner: the reader opens no file
// with a serial number, an address or a host name.
package capture

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Format is the version of the archive. All other versions are refused.
const Format = 1

const (
	manifestName = "manifest.json"
	configName   = "config.yaml"
	sysName      = "sys"
	procName     = "proc"
)

// Machine is a captured machine, for topology.Discover.
type Machine struct {
	Roots topology.Roots
	// PageSize is the base page size in bytes.
	PageSize int64
	// Kernel and Arch are the kernel's release and architecture; empty if they
	// are unknown.
	Kernel, Arch string
	// Config is the content of the frontend's configuration file; nil if it was
	// not captured.
	Config []byte
}

type manifest struct {
	Format   int    `json:"format"`
	PageSize int64  `json:"pageSize"`
	Kernel   string `json:"kernel,omitempty"`
	Arch     string `json:"arch,omitempty"`
}

// Write captures the machine. The same files give the same bytes. A file that
// exists and cannot be read is an error, because the capture would lack it. A
// root without the kernel's list of CPUs is an error, too. config is the text
// of the frontend's configuration, nil for none.
func Write(w io.Writer, roots topology.Roots, pageSize int64, config []byte) error {
	sys, proc := newRecorder(roots.Sys, roots.SysPath), newRecorder(roots.Proc, roots.ProcPath)
	// Only the reading matters, not the machine or its faults.
	_, _ = topology.Discover(topology.Roots{Sys: sys, Proc: proc}, pageSize)
	if err := errors.Join(sys.err, proc.err); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if _, read := sys.files[onlineCPUs]; !read {
		return fmt.Errorf("capture: %s: %w: there is no machine to capture", sys.at(onlineCPUs), fs.ErrNotExist)
	}
	if len(config) > maxFile {
		return fmt.Errorf("capture: the configuration is larger than %d bytes", maxFile)
	}
	m := manifest{
		Format: Format, PageSize: pageSize,
		Kernel: line(roots.Proc, "sys/kernel/osrelease"), Arch: line(roots.Proc, "sys/kernel/arch"),
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(w)
	a := archive{tar.NewWriter(zipped)}
	if err := a.file(manifestName, append(data, '\n')); err != nil {
		return err
	}
	if config != nil {
		if err := a.file(configName, config); err != nil {
			return err
		}
	}
	for _, root := range []struct {
		name string
		r    *recorder
	}{{procName, proc}, {sysName, sys}} {
		if err := a.tree(root.name, root.r); err != nil {
			return err
		}
	}
	if err := a.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

// onlineCPUs is a file that every kernel has.
const onlineCPUs = "devices/system/cpu/online"

// line reads a short optional file.
func line(fsys fs.FS, name string) string {
	data, err := fs.ReadFile(fsys, name)
	if err != nil || len(data) > maxKernel {
		return ""
	}
	return strings.TrimSpace(string(data))
}

type archive struct{ *tar.Writer }

// tree writes the recorded files, and an empty directory for every other
// recorded name.
func (a archive) tree(root string, r *recorder) error {
	names := make(map[string]bool)
	for name := range r.files {
		names[name] = true
	}
	for name := range r.seen {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		data, read := r.files[name]
		if !read {
			if err := a.header(root+"/"+name+"/", 0, tar.TypeDir, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := a.file(root+"/"+name, data); err != nil {
			return err
		}
	}
	return nil
}

func (a archive) file(name string, data []byte) error {
	if err := a.header(name, int64(len(data)), tar.TypeReg, 0o644); err != nil {
		return err
	}
	_, err := a.Write(data)
	return err
}

func (a archive) header(name string, size int64, kind byte, mode int64) error {
	return a.WriteHeader(&tar.Header{
		Name: name, Size: size, Typeflag: kind, Mode: mode, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR,
	})
}

// recorder is a file system that records which files and names are read.
type recorder struct {
	fsys fs.FS
	// root is the mount point of fsys, empty for none.
	root  string
	files map[string][]byte
	// seen are the names from listed directories and from Stat.
	seen map[string]bool
	err  error
}

func newRecorder(fsys fs.FS, root string) *recorder {
	return &recorder{fsys: fsys, root: root, files: make(map[string][]byte), seen: make(map[string]bool)}
}

// Open reads the whole file, so that it is captured as the reader saw it.
func (r *recorder) Open(name string) (fs.File, error) {
	data, err := r.read(name)
	if err != nil {
		r.fail(name, err)
		return nil, err
	}
	r.files[name] = data
	return &file{Reader: bytes.NewReader(data), info: info{name: path.Base(name), size: int64(len(data))}}, nil
}

func (r *recorder) read(name string) ([]byte, error) {
	f, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", r.at(name), maxFile)
	}
	return data, nil
}

// ReadDir records the names in the directory.
func (r *recorder) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(r.fsys, name)
	if err != nil {
		r.fail(name, err)
		return nil, err
	}
	r.seen[name] = true
	for _, e := range entries {
		r.seen[name+"/"+e.Name()] = true
	}
	return entries, nil
}

// Stat records that the file exists.
func (r *recorder) Stat(name string) (fs.FileInfo, error) {
	found, err := fs.Stat(r.fsys, name)
	if err != nil {
		r.fail(name, err)
		return nil, err
	}
	r.seen[name] = true
	return found, nil
}

func (r *recorder) at(name string) string { return path.Join(r.root, name) }

// fail keeps the first error. An absent file, or one that disappears while it
// is read, is no error.
func (r *recorder) fail(name string, err error) {
	if r.err != nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return
	}
	if inside, isPath := errors.AsType[*fs.PathError](err); isPath {
		err = &fs.PathError{Op: inside.Op, Path: r.at(name), Err: inside.Err}
	}
	r.err = err
}
