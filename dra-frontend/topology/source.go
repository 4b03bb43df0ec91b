// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// maxFileSize bounds a file: the longest are lists of CPUs and meminfo.
const maxFileSize = 1 << 20

// source reads small files; its errors name them.
type source struct {
	fsys fs.FS
	name string
}

func (s source) at(path string) string { return s.name + " " + path }

func (s source) text(path string) (string, error) {
	f, err := s.fsys.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.name, err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.at(path), err)
	}
	if len(data) > maxFileSize {
		return "", fmt.Errorf("%s is larger than %d bytes", s.at(path), maxFileSize)
	}
	return strings.TrimSpace(string(data)), nil
}

func (s source) list(path string) ([]int, error) {
	text, err := s.text(path)
	if err != nil {
		return nil, err
	}
	if text == "" { // the kernel's empty list
		return nil, nil
	}
	ids, err := contract.ParseList(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.at(path), err)
	}
	return ids, nil
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

// names lists a directory; an absent one is empty.
func (s source) names(path string) ([]string, error) {
	entries, err := fs.ReadDir(s.fsys, path)
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// maxNumber bounds every number: products with a page size stay in int64.
const maxNumber = 1 << 48

func parseNumber(text string, lowest int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < lowest || n > maxNumber {
		return 0, fmt.Errorf("%q is not a number between %d and %d", text, lowest, int64(maxNumber))
	}
	return n, nil
}

// parseMemTotal reads the total of /proc/meminfo or of a node's meminfo, whose
// lines start with "Node <id>", in bytes.
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
