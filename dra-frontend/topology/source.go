// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// maxFileSize bounds a file, in bytes. The longest are lists of CPUs and
// meminfo.
const maxFileSize = 1 << 20

// source reads small files. Its errors name the file.
type source struct {
	fsys fs.FS
	// name stands for root, the path of fsys, in messages if root is empty.
	name, root string
}

func (s source) at(name string) string {
	if s.root == "" {
		return s.name + " " + name
	}
	return path.Join(s.root, name)
}

// fault returns the error with the file's whole path.
func (s source) fault(name string, err error) error {
	if inside, isPath := errors.AsType[*fs.PathError](err); isPath {
		return &fs.PathError{Op: inside.Op, Path: s.at(name), Err: inside.Err}
	}
	return fmt.Errorf("%s: %w", s.at(name), err)
}

func (s source) text(path string) (string, error) {
	f, err := s.fsys.Open(path)
	if err != nil {
		return "", s.fault(path, err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return "", s.fault(path, err)
	}
	if len(data) > maxFileSize {
		return "", fmt.Errorf("%s is larger than %d bytes", s.at(path), maxFileSize)
	}
	// Some kernels end a file with a NUL.
	return strings.TrimFunc(string(data), func(r rune) bool { return r == 0 || unicode.IsSpace(r) }), nil
}

// cpus reads a list of CPUs.
func (s source) cpus(path string) (contract.CPUSet, error) {
	return readSet(s, path, contract.ParseCPUs)
}

// nodes reads a list of NUMA nodes.
func (s source) nodes(path string) (contract.NUMANodeSet, error) {
	return readSet(s, path, contract.ParseNUMANodes)
}

// mask reads a mask of CPUs.
func (s source) mask(path string) (contract.CPUSet, error) {
	return readSet(s, path, contract.ParseCPUMask)
}

// readSet reads a file with a set.
func readSet[T any](s source, path string, parse func(string) (T, error)) (set T, err error) {
	text, err := s.text(path)
	if err != nil {
		return set, err
	}
	if set, err = parse(text); err != nil {
		return set, fmt.Errorf("%s: %w", s.at(path), err)
	}
	return set, nil
}

// number reads an integer of at least lowest.
func (s source) number(path string, lowest int64) (int64, error) {
	text, err := s.text(path)
	if err != nil {
		return 0, err
	}
	n, err := parseNumber(text, lowest)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.at(path), err)
	}
	return n, nil
}

// names returns the names in a directory; none if the directory is absent.
func (s source) names(path string) ([]string, error) {
	entries, err := fs.ReadDir(s.fsys, path)
	if err != nil && !missing(err) {
		return nil, s.fault(path, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// missing reports whether the error is about an absent file; ENODEV is for a
// file that disappeared while open.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

// maxNumber bounds every number: kilobytes become bytes without overflow.
const maxNumber = 1 << 48

func parseNumber(text string, lowest int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < lowest || n > maxNumber {
		return 0, fmt.Errorf("%q is not a number between %d and %d", text, lowest, int64(maxNumber))
	}
	return n, nil
}

// parseMemTotal returns MemTotal in bytes. text is /proc/meminfo or a node's
// meminfo, where lines start with "Node <id>".
func parseMemTotal(text string) (int64, error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 5 && fields[0] == "Node" {
			fields = fields[2:]
		}
		if len(fields) != 3 || fields[0] != "MemTotal:" || fields[2] != "kB" {
			continue
		}
		kB, err := parseNumber(fields[1], 0)
		if err != nil {
			return 0, fmt.Errorf("MemTotal: %w", err)
		}
		return kB << 10, nil
	}
	return 0, errors.New(`no line "MemTotal: <number> kB"`)
}

// parseHugepageDir reads the page size in bytes from a name such as
// "hugepages-2048kB".
func parseHugepageDir(name string) (int64, error) {
	digits, prefixed := strings.CutPrefix(name, "hugepages-")
	digits, suffixed := strings.CutSuffix(digits, "kB")
	kB, err := parseNumber(digits, 1)
	if err != nil || !prefixed || !suffixed || kB&(kB-1) != 0 || kB > 1<<32 {
		return 0, fmt.Errorf("%q is not the name of a hugepage size, such as hugepages-2048kB", name)
	}
	return kB << 10, nil
}

// parseDistances reads one distance for each node.
func parseDistances(text string, nodes int) ([]int, error) {
	fields := strings.Fields(text)
	if len(fields) != nodes {
		return nil, fmt.Errorf("%d distances for %d online nodes", len(fields), nodes)
	}
	distances := make([]int, 0, nodes)
	for _, f := range fields {
		d, err := parseNumber(f, 0)
		if err != nil {
			return nil, err
		}
		distances = append(distances, int(d))
	}
	return distances, nil
}
