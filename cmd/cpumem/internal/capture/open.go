// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// Limits of a capture, which may come from anywhere: bytes, and entries. The
// largest machines of Linux stay far below.
const (
	maxFile    = 1 << 20
	maxBytes   = 64 << 20
	maxArchive = 256 << 20
	maxEntries = 1 << 18
	maxName    = 255
	maxKernel  = 128
)

// Open reads a capture. It uses nothing but the bytes of r, and refuses all
// that [Write] does not write, except for another order: a capture that was
// unpacked and packed again with tar is valid.
func Open(r io.Reader) (Machine, error) {
	m, err := open(r)
	if err != nil {
		return Machine{}, fmt.Errorf("capture: %w", err)
	}
	return m, nil
}

func open(r io.Reader) (Machine, error) {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return Machine{}, fmt.Errorf("not a gzipped archive: %w", err)
	}
	limited := &io.LimitedReader{R: unzipped, N: maxArchive}
	c := contents{single: make(map[string][]byte), trees: map[string]*tree{sysName: newTree(), procName: newTree()}}
	archive := tar.NewReader(limited)
	for entries := 0; ; entries++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		switch {
		case limited.N == 0:
			return Machine{}, errLarge
		case err != nil:
			return Machine{}, fmt.Errorf("damaged or cut off after %d entries: %w", entries, err)
		case entries == maxEntries:
			return Machine{}, errEntries
		}
		if err := c.add(header, archive); err != nil {
			return Machine{}, err
		}
	}
	// The archive ends before the file: the checksum comes last.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return Machine{}, fmt.Errorf("damaged or cut off: %w", err)
	}
	if limited.N == 0 {
		return Machine{}, errLarge
	}
	return c.machine()
}

type contents struct {
	// single are the files beside the trees.
	single map[string][]byte
	trees  map[string]*tree
	bytes  int64
}

// add adds an entry of the archive.
func (c *contents) add(h *tar.Header, r io.Reader) error {
	name := strings.TrimSuffix(h.Name, "/")
	root, rest, _ := strings.Cut(name, "/")
	t, known := c.trees[root]
	switch {
	case !fs.ValidPath(name) || len(name) > maxName:
		return fmt.Errorf("%q is not a path inside the archive", h.Name)
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return fmt.Errorf("%q is a link or a special file; only files and directories are allowed", h.Name)
	case name != manifestName && name != configName && !known:
		return fmt.Errorf("%q is neither %s nor %s nor below %s/ or %s/", h.Name, manifestName, configName, sysName, procName)
	case h.Size > maxFile:
		return fmt.Errorf("%q is larger than %d bytes", h.Name, maxFile)
	case h.Typeflag == tar.TypeDir && rest == "" && known:
		return nil
	case h.Typeflag == tar.TypeDir && known:
		return named(h.Name, t.addDir(rest))
	case h.Typeflag == tar.TypeDir || known && rest == "":
		return fmt.Errorf("%q is of the wrong type", h.Name)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return fmt.Errorf("%q: damaged or cut off: %w", h.Name, err)
	}
	if c.bytes += int64(len(data)); c.bytes > maxBytes {
		return fmt.Errorf("the files have more than %d bytes", maxBytes)
	}
	if known {
		return named(h.Name, t.addFile(rest, data))
	}
	if _, twice := c.single[name]; twice {
		return named(h.Name, errTwice)
	}
	c.single[name] = data
	return nil
}

func named(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}

func (c *contents) machine() (Machine, error) {
	text, found := c.single[manifestName]
	if !found {
		return Machine{}, fmt.Errorf("no %s: this is not a capture", manifestName)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return Machine{}, fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Format != Format {
		return Machine{}, fmt.Errorf("%s: format %d; this program reads format %d", manifestName, m.Format, Format)
	}
	if len(m.Kernel) > maxKernel || len(m.Arch) > maxKernel {
		return Machine{}, fmt.Errorf("%s: kernel or arch is longer than %d bytes", manifestName, maxKernel)
	}
	return Machine{
		Roots:    topology.Roots{Sys: c.trees[sysName], Proc: c.trees[procName]},
		PageSize: m.PageSize, Kernel: m.Kernel, Arch: m.Arch, Config: c.single[configName],
	}, nil
}

var (
	errLarge    = fmt.Errorf("larger than %d bytes when unpacked", maxArchive)
	errEntries  = fmt.Errorf("more than %d files and directories", maxEntries)
	errTwice    = errors.New("is in the archive twice")
	errConflict = errors.New("is a file and a directory")
)
