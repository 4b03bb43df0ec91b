// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const slice = ".slice"

// LevelDir returns the directory of a level below the cgroup mount. The name of
// kubepods shows which cgroup driver kubelet uses.
func LevelDir(kubepods, level string) string {
	if level == contract.LevelKubepods {
		return kubepods
	}
	if stem, systemd := strings.CutSuffix(path.Base(kubepods), slice); systemd {
		return path.Join(kubepods, stem+"-"+level+slice)
	}
	return path.Join(kubepods, level)
}

// PodDir returns the directory of a pod of a level.
func PodDir(kubepods, level, uid string) string {
	parent := LevelDir(kubepods, level)
	if stem, systemd := strings.CutSuffix(path.Base(parent), slice); systemd {
		// In the name of a systemd slice, a dash separates levels.
		return path.Join(parent, stem+"-pod"+strings.ReplaceAll(uid, "-", "_")+slice)
	}
	return path.Join(parent, "pod"+uid)
}

// tree reads cgroup files below root, each file once.
type tree struct {
	root fs.FS
	seen map[string]reading
}

// reading is a value in bytes ("max" as MaxInt64) or an error.
type reading struct {
	value int64
	err   error
}

func (t tree) read(dir, file string) (int64, error) {
	name := path.Join(dir, file)
	r, seen := t.seen[name]
	if !seen {
		r.value, r.err = readValue(t.root, name)
		t.seen[name] = r
	}
	return r.value, r.err
}

func readValue(root fs.FS, name string) (int64, error) {
	data, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(data))
	if text == "max" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is neither bytes nor \"max\"", name, text)
	}
	return n, nil
}
