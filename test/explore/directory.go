// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/disk"
)

// The directories of the world, on its disk.
const (
	cdiDir   = "cdi"
	location = "kubelet/cdi-dir.json"
)

// directory is the CDI directory as the frontend sees it. Each change is done to the
// directory, and by its operations to the model of the disk.
type directory struct {
	ledger.ClaimDir
	*life
	w *world
}

// List lists the directory. ClaimDir keeps its location current then.
func (d directory) List() (infos []fs.FileInfo, err error) {
	err = d.change(d.locate(d.claims() > 0), func() error {
		infos, err = d.ClaimDir.List()
		return err
	})
	return infos, err
}

// Write replaces a file, after the location of the first claim file.
func (d directory) Write(name string, data []byte) error {
	var operations []disk.Operation
	if isClaim(name) {
		operations = d.locate(true)
	}
	operations = append(operations, disk.Replacement(path.Join(cdiDir, name), string(data))...)
	err := d.change(operations, func() error { return d.ClaimDir.Write(name, data) })
	d.w.note("the write of "+name, d.w.files())
	return err
}

// Remove removes a file, and then the location if it was the last claim file.
func (d directory) Remove(name string) error {
	left := d.claims()
	if _, there := d.w.disk.Now()[path.Join(cdiDir, name)]; there {
		left--
	}
	operations := append(disk.Removal(path.Join(cdiDir, name)), d.locate(left > 0)...)
	err := d.change(operations, func() error { return d.ClaimDir.Remove(name) })
	d.w.note("the removal of "+name, d.w.files())
	return err
}

// RemoveStale removes unfinished files.
func (d directory) RemoveStale() error { return d.change(d.w.unfinished(), d.ClaimDir.RemoveStale) }

// locate returns the operations that make the location current: it is there if and only if
// there are claim files.
func (d directory) locate(claims bool) []disk.Operation {
	content := fmt.Sprintf(`{"bootID":%q,"cdiDir":%q}`, d.w.bootID(), d.w.cdi())
	switch there := d.w.disk.Now()[location] == content; {
	case claims && !there:
		return disk.Replacement(location, content)
	case !claims && there:
		return disk.Removal(location)
	}
	return nil
}

// claims returns the number of claim files.
func (d directory) claims() (n int) {
	for name := range d.w.disk.Now() {
		if isClaim(path.Base(name)) {
			n++
		}
	}
	return n
}

func isClaim(name string) bool {
	_, claim := contract.ClaimUIDOfFile(name)
	return claim
}

// change changes the directory. The process may crash, and the machine may lose its power,
// after each operation.
func (d directory) change(operations []disk.Operation, do func() error) error {
	if d.over {
		return fs.ErrClosed
	}
	for _, o := range operations {
		failed := d.write(func() error { return nil })
		if failed == nil || d.kind == late && o.Kind != disk.Sync && o.Kind != disk.SyncDirectory {
			d.w.disk.Do(o)
		}
		if failed != nil {
			// Package atomicfile removes the unfinished file.
			for _, o := range d.w.unfinished() {
				d.w.disk.Do(o)
			}
			return errors.Join(failed, d.w.restore())
		}
		d.mayLosePower(d.w.disk)
	}
	if err := do(); err != nil {
		return err
	}
	return d.w.sameDisk()
}

// unfinished returns the operations that remove unfinished files.
func (w *world) unfinished() []disk.Operation {
	var operations []disk.Operation
	for _, name := range slices.Sorted(maps.Keys(w.disk.Now())) {
		if strings.HasSuffix(name, disk.Temporary) {
			operations = append(operations, disk.Operation{Kind: disk.Unlink, Path: name})
		}
	}
	return operations
}

// sameDisk returns an error unless the directories have what the disk has.
func (w *world) sameDisk() error {
	have := make(disk.Files)
	for _, dir := range []string{cdiDir, path.Dir(location)} {
		entries, err := os.ReadDir(filepath.Join(w.dir, dir))
		if err != nil {
			return err
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(w.dir, dir, e.Name()))
			if err != nil {
				return err
			}
			have[path.Join(dir, e.Name())] = string(data)
		}
	}
	if now := w.disk.Now(); !maps.Equal(have, now) {
		return fmt.Errorf("the directories have %q, the model of the disk has %q", have, now)
	}
	return nil
}

// restore makes the directories what the disk has.
func (w *world) restore() error {
	for _, dir := range []string{cdiDir, path.Dir(location)} {
		if err := errors.Join(os.RemoveAll(filepath.Join(w.dir, dir)), os.MkdirAll(filepath.Join(w.dir, dir), 0o700)); err != nil {
			return err
		}
	}
	for name, content := range w.disk.Now() {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
