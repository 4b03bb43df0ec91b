// SPDX-License-Identifier: Apache-2.0

package receipt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// FileName is the name of the book's file in the plugin's data directory.
const FileName = "receipts.json"

// maxFile is in bytes: a book of 512 results with 200 interrupts each has a quarter of it.
const maxFile = 8 << 20

// File is the file of a book. One process at a time writes it.
type File struct {
	// Dir is the plugin's data directory.
	Dir string
}

// Read returns the book, an empty one if there is no file.
func (f File) Read() (Book, error) {
	data, err := atomicfile.Read(f.Dir, FileName, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Book{}, nil
	}
	if err != nil {
		return Book{}, err
	}
	b, err := parseBook(data)
	if err != nil {
		return Book{}, fmt.Errorf("%s: %w: the frontend writes it anew", filepath.Join(f.Dir, FileName), err)
	}
	return b, nil
}

func parseBook(data []byte) (Book, error) {
	var b Book
	if err := json.Unmarshal(data, &b); err != nil {
		return Book{}, err
	}
	return b, nil
}

// Write replaces the book. A book without entries has no file.
func (f File) Write(b Book) error {
	if len(b.Entries) == 0 {
		return atomicfile.Remove(f.Dir, FileName)
	}
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return atomicfile.Write(f.Dir, FileName, data, 0o600)
}

// RemoveStale removes unfinished files of a killed writer.
func (f File) RemoveStale() error {
	return atomicfile.RemoveStale(f.Dir, func(name string) bool { return name == FileName })
}
