// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	prefix = "nri-actuator-"
	// keepRecent guards stay even if no claim names them: the frontend may just
	// be writing a claim file with the path of the old actuator's guard.
	keepRecent = 3
)

// Install copies the program self into dir and returns the copy's path. The
// path depends on the content: a claim file names the guard of its time as long
// as the claim lives, so no other version may take that guard's path.
func Install(dir, self string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("guard directory %q is not an absolute path", dir)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	sum := sha256.Sum256(program)
	path := filepath.Join(dir, prefix+hex.EncodeToString(sum[:6]))
	if installed(path, program) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	if err := atomicfile.RemoveStale(dir, func(name string) bool { return strings.HasPrefix(name, prefix) }); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	if err := atomicfile.Write(dir, filepath.Base(path), program, 0o755); err != nil {
		return "", fmt.Errorf("guard: %w", err)
	}
	return path, nil
}

func installed(path string, program []byte) bool {
	// A file of another kind is not opened: a FIFO would block.
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o755 {
		return false
	}
	have, _ := os.ReadFile(path) // what cannot be read is not the program
	return bytes.Equal(have, program)
}

// Prune removes installed guards that no claim file in cdiDir names, except
// current and the most recent guards. If a claim file cannot be read, it removes
// nothing: a container without its hook's program does not start.
func Prune(dir, current, cdiDir string) error {
	claims, err := claimFiles(cdidir.At(cdiDir))
	if err != nil {
		return fmt.Errorf("guard: claim files: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	type guard struct {
		path string
		at   time.Time
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
	var errs []error
	for i, g := range guards {
		named := slices.ContainsFunc(claims, func(data []byte) bool { return bytes.Contains(data, []byte(g.path)) })
		if i < keepRecent || g.path == current || named {
			continue
		}
		errs = append(errs, os.Remove(g.path))
	}
	return errors.Join(errs...)
}

func claimFiles(dir cdidir.Dir) ([][]byte, error) {
	infos, err := dir.List()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files [][]byte
	for _, info := range infos {
		if _, ours := contract.ClaimUIDOfFile(info.Name()); !ours {
			continue
		}
		data, err := dir.Read(info.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, data)
	}
	return files, nil
}
