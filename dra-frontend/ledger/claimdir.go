// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// ClaimDir is the CDI directory with this node's claim files. While there are claim
// files, a file outside the directory names the directory. Otherwise a frontend with
// another cdiDir would find no claims and give the CPUs of running claims away (I1).
type ClaimDir struct {
	cdidir.Dir
	file   string
	bootID string
}

// location is the content of that file, which exists while there are claim files.
type location struct {
	BootID string `json:"bootID"`
	CDIDir string `json:"cdiDir"`
}

// maxLocation is in bytes, far above the size of a location.
const maxLocation = 16 << 10

// NewClaimDir returns the directory d. The file at the path file says which directory
// has the claims of the boot bootID. The caller excludes other processes from all
// calls that write.
func NewClaimDir(d cdidir.Dir, file, bootID string) ClaimDir {
	return ClaimDir{Dir: d, file: file, bootID: bootID}
}

// Check returns an error if the node's claims are in another directory.
func (d ClaimDir) Check() error {
	_, err := d.check()
	return err
}

// List returns the directory's entries, or an error if the node's claims are in
// another directory.
func (d ClaimDir) List() ([]fs.FileInfo, error) {
	remembered, err := d.check()
	if err != nil {
		return nil, err
	}
	infos, err := d.Dir.List()
	if err != nil {
		return nil, err
	}
	switch claims := slices.ContainsFunc(infos, func(i fs.FileInfo) bool { return isClaim(i.Name()) }); {
	case claims && !remembered:
		// An older frontend, which writes no location, wrote these claim files.
		err = d.remember()
	case !claims && remembered:
		err = atomicfile.Remove(filepath.Dir(d.file), filepath.Base(d.file))
	}
	return infos, err
}

// RemoveStale removes the unfinished files of killed frontends. Only the active instance
// may call it.
func (d ClaimDir) RemoveStale() error {
	err := atomicfile.RemoveStale(filepath.Dir(d.file), func(name string) bool { return name == filepath.Base(d.file) })
	return errors.Join(err, d.Dir.RemoveStale())
}

// Write replaces a file. The location is written before the first claim file.
func (d ClaimDir) Write(name string, data []byte) error {
	if isClaim(name) {
		remembered, err := d.check()
		if err == nil && !remembered {
			err = d.remember()
		}
		if err != nil {
			return err
		}
	}
	return d.Dir.Write(name, data)
}

// Remove removes a file. An absent file is no error.
func (d ClaimDir) Remove(name string) error {
	if _, err := d.check(); err != nil {
		return err
	}
	if err := d.Dir.Remove(name); err != nil {
		return err
	}
	_, err := d.List()
	return err
}

func isClaim(name string) bool {
	_, claim := contract.ClaimUIDOfFile(name)
	return claim
}

// check reports whether the location of this boot is this directory. A location that
// is another directory or cannot be read is an error.
func (d ClaimDir) check() (bool, error) {
	data, err := atomicfile.Read(filepath.Dir(d.file), filepath.Base(d.file), maxLocation)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var at location
	if err == nil {
		err = json.Unmarshal(data, &at)
	}
	if err == nil && (at.BootID == "" || at.CDIDir == "") {
		err = errors.New("it names no boot and directory")
	}
	if err != nil {
		return false, fmt.Errorf("%s says in which directory the claims of this node are, and cannot be read: %w; "+
			"remove it if no other cdiDir was configured since the node started", d.file, err)
	}
	if at.BootID != d.bootID {
		return false, nil
	}
	if own := filepath.Clean(d.String()); at.CDIDir != own {
		return false, fmt.Errorf("the claims of this node are in %s and cdiDir is %s: "+
			"set cdiDir back and delete the pods with claims on this node before you change it; "+
			"if there are no such pods any more, remove %s", at.CDIDir, own, d.file)
	}
	return true, nil
}

func (d ClaimDir) remember() error {
	data, err := json.Marshal(location{BootID: d.bootID, CDIDir: filepath.Clean(d.String())})
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Dir(d.file), filepath.Base(d.file), data, 0o600)
}
