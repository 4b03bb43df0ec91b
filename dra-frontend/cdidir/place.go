// SPDX-License-Identifier: Apache-2.0

package cdidir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// Placed is a CDI directory that is the only one of its node while claim files
// are in it. A file outside the directory names it: after a change of cdiDir
// the new directory is empty and the old one may not be mounted, and the CPUs
// of running claims would be given away again (I1).
type Placed struct {
	Dir
	file   string
	bootID string
}

// place is the content of that file, which exists while there are claim files.
type place struct {
	BootID string `json:"bootID"`
	CDIDir string `json:"cdiDir"`
}

// maxPlace is in bytes, far above the size of a place.
const maxPlace = 16 << 10

// NewPlaced returns the directory d. The file at the path file says which directory
// has the claims of the boot bootID. The caller excludes other processes from all
// calls that write.
func NewPlaced(d Dir, file, bootID string) Placed { return Placed{Dir: d, file: file, bootID: bootID} }

// Check returns an error if the node's claims are in another directory.
func (p Placed) Check() error {
	_, err := p.check()
	return err
}

// List returns the directory's entries, or an error if the node's claims are in
// another directory.
func (p Placed) List() ([]fs.FileInfo, error) {
	remembered, err := p.check()
	if err != nil {
		return nil, err
	}
	infos, err := p.Dir.List()
	if err != nil {
		return nil, err
	}
	switch claims := slices.ContainsFunc(infos, func(i fs.FileInfo) bool { return isClaim(i.Name()) }); {
	case claims && !remembered:
		// An older frontend, which writes no place, wrote these claim files.
		err = p.remember()
	case !claims && remembered:
		err = atomicfile.Remove(filepath.Dir(p.file), filepath.Base(p.file))
	}
	return infos, err
}

// Write replaces a file. The place is written before the first claim file.
func (p Placed) Write(name string, data []byte) error {
	if isClaim(name) {
		remembered, err := p.check()
		if err == nil && !remembered {
			err = p.remember()
		}
		if err != nil {
			return err
		}
	}
	return p.Dir.Write(name, data)
}

// Remove removes a file. An absent file is no error.
func (p Placed) Remove(name string) error {
	if _, err := p.check(); err != nil {
		return err
	}
	if err := p.Dir.Remove(name); err != nil {
		return err
	}
	_, err := p.List()
	return err
}

func isClaim(name string) bool {
	_, claim := contract.ClaimUIDOfFile(name)
	return claim
}

// check reports whether the place of this boot is this directory. A place that
// is another directory or cannot be read is an error.
func (p Placed) check() (bool, error) {
	data, err := atomicfile.Read(filepath.Dir(p.file), filepath.Base(p.file), maxPlace)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var at place
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err == nil && (at.BootID == "" || at.CDIDir == "") {
		err = errors.New("it names no boot and directory")
	}
	if err != nil {
		return false, fmt.Errorf("%s says in which directory the claims of this node are, and cannot be read: %w; "+
			"remove it if no other cdiDir was configured since the node started", p.file, err)
	}
	if at.BootID != p.bootID {
		return false, nil
	}
	if own := filepath.Clean(p.path); at.CDIDir != own {
		return false, fmt.Errorf("the claims of this node are in %s and cdiDir is %s: "+
			"set cdiDir back and delete the pods with claims on this node before you change it; "+
			"if there are no such pods any more, remove %s", at.CDIDir, own, p.file)
	}
	return true, nil
}

func (p Placed) remember() error {
	data, err := json.Marshal(place{BootID: p.bootID, CDIDir: filepath.Clean(p.path)})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Dir(p.file), filepath.Base(p.file), data, fileMode)
}
