// SPDX-License-Identifier: Apache-2.0

// Package installation keeps copies of the guard's program on the node: the runtime runs them long after the image that brought
// them is gone. The actuator installs its copy at its start, before it announces the copy's path to the frontend. The package is
// apart from package guard, so that the guard's program does not contain it.
package installation

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

const (
	// prefix begins the names of installed guards. contract.IsGuard recognises them by it, also
	// those of versions whose guard was nri-actuator's own program.
	prefix = "nri-actuator-"
	// keepRecent guards stay even if no claim names them: the frontend may just
	// be writing a claim file with the path of the old actuator's guard.
	keepRecent = 3
)

// Install copies the file program into dir and returns the copy's path. The
// path depends on the content: a claim file names the guard of its time as long
// as the claim lives, so no other version may take that guard's path.
func Install(dir, program string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("guard directory %q is not an absolute path", dir)
	}
	file, err := os.Open(program)
	if err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	defer file.Close()
	sum, err := digest(file)
	if err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum[:6]))
	if installed(path, sum) {
		// Prune keeps the most recent guards: an actuator that was rolled back announces an old one.
		now := time.Now()
		if err := os.Chtimes(path, now, now); err != nil {
			return "", fmt.Errorf("guard: %w", err)
		}
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	if err := atomicfile.RemoveStale(dir, func(name string) bool { return strings.HasPrefix(name, prefix) }); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	if err := write(path, file); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	return path, nil
}

// digest returns the SHA-256 of what is left of r. The program is never in memory as a
// whole: it would be most of the memory that the actuator ever needs.
func digest(r io.Reader) ([]byte, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return h.Sum(nil), err
}

// write replaces the file at path with program. It renames a new file to path, because the
// kernel refuses a write into the file of a running program (execve(2), ETXTBSY).
func write(path string, program io.ReadSeeker) error {
	if _, err := program.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f, err := atomicfile.WriteHeld(filepath.Dir(path), filepath.Base(path), nil, 0o755, func(f *os.File) error {
		_, err := io.Copy(f, program)
		return errors.Join(err, f.Sync())
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// installed reports whether the file at path has the digest sum.
func installed(path string, sum []byte) bool {
	// A file of another kind is not opened: a FIFO would block.
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o755 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	have, err := digest(f)
	return err == nil && bytes.Equal(have, sum)
}

// Prune removes installed guards that no claim file in cdiDir names, except
// current and the most recent guards. If a claim file cannot be read, it removes
// nothing: a container without its hook's program does not start.
func Prune(dir, current, cdiDir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	type guard struct {
		path  string
		at    time.Time
		named bool
	}
	var guards []guard
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), prefix) && info.Mode().IsRegular() {
			guards = append(guards, guard{path: filepath.Join(dir, e.Name()), at: info.ModTime()})
		}
	}
	slices.SortFunc(guards, func(a, b guard) int {
		return cmp.Or(b.at.Compare(a.at), strings.Compare(a.path, b.path))
	})
	err = eachClaimFile(cdidir.At(cdiDir), func(data []byte) {
		for i := range guards {
			guards[i].named = guards[i].named || bytes.Contains(data, []byte(guards[i].path))
		}
	})
	if err != nil {
		return fmt.Errorf("guard: claim files: %w", err)
	}
	var errs []error
	for i, g := range guards {
		if i < keepRecent || g.path == current || g.named {
			continue
		}
		errs = append(errs, os.Remove(g.path))
	}
	return errors.Join(errs...)
}

// eachClaimFile calls visit with the content of each claim file. There can be many, so one is in memory at a time.
func eachClaimFile(dir cdidir.Dir, visit func(data []byte)) error {
	infos, err := dir.List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, info := range infos {
		if _, ours := contract.ClaimUIDOfFile(info.Name()); !ours {
			continue
		}
		data, err := dir.Read(info.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		visit(data)
	}
	return nil
}
