// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// FromFiles returns a machine that was described, not captured. sys and proc
// are its files of /sys and /proc, content by path.
func FromFiles(sys, proc map[string][]byte, pageSize int64) (Machine, error) {
	trees := make([]*tree, 0, 2)
	for _, files := range []map[string][]byte{sys, proc} {
		t := newTree()
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if err := t.addFile(name, files[name]); err != nil {
				return Machine{}, fmt.Errorf("%q: %w", name, err)
			}
		}
		trees = append(trees, t)
	}
	return Machine{Roots: topology.Roots{Sys: trees[0], Proc: trees[1]}, PageSize: pageSize}, nil
}
