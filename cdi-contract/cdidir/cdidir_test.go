// SPDX-License-Identifier: Apache-2.0

package cdidir_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

func TestRemoveStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	d, err := cdidir.Open(path)
	require.NoError(t, err)
	mine := []string{"." + contract.NodeFile + ".tmp-1", "." + contract.ClaimFile("00000000-0000-0000-0000-000000000001") + ".tmp-2"}
	others := []string{"." + contract.ActuatorFile + ".tmp-3", ".vendor.json.tmp-4", "vendor.json"}
	for _, name := range append(mine, others...) {
		require.NoError(t, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	require.NoError(t, d.RemoveStale())
	infos, err := d.List()
	require.NoError(t, err)
	var left []string
	for _, i := range infos {
		left = append(left, i.Name())
	}
	require.ElementsMatch(t, others, left)
	require.NoError(t, d.CheckWritable())
}

// A17: a path that is no directory is refused at start.
func TestOpenRefusesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cdi")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := cdidir.Open(path)
	require.ErrorContains(t, err, "not a directory")
}

// Two locks of one file stand for two processes: the kernel gives the lock to
// an open file, not to a process.
func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	inside, most := 0, 0
	var wg sync.WaitGroup
	var count sync.Mutex
	for range 4 {
		wg.Go(func() {
			for range 50 {
				release, err := cdidir.NewLock(path).Acquire()
				if err != nil {
					t.Error(err)
					return
				}
				count.Lock()
				inside++
				most = max(most, inside)
				count.Unlock()
				count.Lock()
				inside--
				count.Unlock()
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, most)
}
