// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

var errCrashed = errors.New("the process is dead")

// crashing is a directory of a process that dies after left changes. After each
// change it checks the order of writes.
type crashing struct {
	ledger.Directory
	check func()
	left  *int
}

func (c crashing) change(do func() error) error {
	if *c.left == 0 {
		return errCrashed
	}
	*c.left--
	err := do()
	c.check()
	return err
}

func (c crashing) Write(name string, data []byte) error {
	return c.change(func() error { return c.Directory.Write(name, data) })
}

func (c crashing) Remove(name string) error {
	return c.change(func() error { return c.Directory.Remove(name) })
}

// held returns the CPUs of all claim files and checks that no CPU is in two
// claims.
func (n *node) held() contract.CPUSet {
	held := contract.CPUs()
	for _, path := range n.claimFiles() {
		data, err := os.ReadFile(path)
		require.NoError(n.t, err)
		r, err := contract.DecodeClaim(filepath.Base(path), data)
		require.NoError(n.t, err)
		cpus := r.CPUs()
		require.True(n.t, held.Intersection(cpus).IsEmpty(), "I1: CPUs %s are in two claims", held.Intersection(cpus))
		held = held.Union(cpus)
	}
	return held
}

// I1, I3, I4: claims come and go while the process dies at any of its writes.
// The shared pool never has a claim's CPU. After each restart the node state
// follows from the claim files. When all claims are gone, it is the state of
// the start.
func TestCrashAtAnyWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// /var/run/cdi is on tmpfs. On a disk the test would wait for each
		// fsync.
		work, err := os.MkdirTemp("/dev/shm", "cpumem")
		require.NoError(rt, err)
		defer os.RemoveAll(work)
		n := nodeIn(rt, work)
		dir, err := cdidir.Open(n.dir)
		require.NoError(rt, err)
		left := -1
		ordering := func() {
			data, err := dir.Read(contract.NodeFile)
			if errors.Is(err, os.ErrNotExist) {
				return
			}
			require.NoError(rt, err)
			s, err := contract.DecodeNode(data)
			require.NoError(rt, err)
			shared := s.Shared.CPUs
			require.True(rt, shared.Intersection(n.held()).IsEmpty(), "I1: shared %s, held %s", shared, n.held())
		}
		n.wrap = func(d ledger.Directory) ledger.Directory { return crashing{Directory: d, check: ordering, left: &left} }
		n.restart()
		requireReconciled(rt, n.driver)
		start := n.state()

		live := map[int]bool{}
		// kept are the claims that kubelet was told are prepared, with their CPUs.
		kept := map[int]contract.CPUSet{}
		for step := range rapid.IntRange(1, 12).Draw(rt, "steps") {
			left = rapid.IntRange(-1, 4).Draw(rt, "writes until death")
			if len(live) > 0 && rapid.Bool().Draw(rt, "release") {
				victims := rapid.SliceOfNDistinct(rapid.SampledFrom(keys(live)), 1, -1, rapid.ID[int]).Draw(rt, "victims")
				for _, victim := range victims {
					delete(kept, victim)
				}
				results := n.unprepareAll(victims...)
				for _, victim := range victims {
					if results[types.UID(uid(victim))] == nil {
						delete(live, victim)
					}
				}
			} else {
				zone := rapid.SampledFrom([]string{"numa-0", "numa-1"}).Draw(rt, "zone")
				cpus := rapid.SampledFrom([]string{"0", "1", "2"}).Draw(rt, "cpus")
				c := n.claim(step+1, zone, capacity{"cpu": cpus, "memory": "4Mi"})
				live[step+1] = true
				_, err := n.prepare(c)
				if err == nil {
					kept[step+1] = n.record(step + 1).CPUs()
				}
				if err != nil && !errors.Is(err, errCrashed) {
					// The zone has no room. The refused claim must leave
					// nothing behind.
					delete(live, step+1)
				}
			}
			left = -1
			if rapid.Bool().Draw(rt, "restart") {
				n.restart()
			}
			requireReconciled(rt, n.driver)
			ordering()
			s := n.state()
			shared := s.Shared.CPUs
			require.Equal(rt, "0-7", shared.Union(n.held()).String(), "I3: no CPU is lost")
			for i, cpus := range kept {
				require.Equal(rt, cpus, n.record(i).CPUs(), "I4, I8: claim %d", i)
			}
		}
		for i := range live {
			require.NoError(rt, n.unprepare(i))
		}
		end := n.state()
		end.Generation = start.Generation
		require.Equal(rt, start, end)
		require.Empty(rt, n.claimFiles())
	})
}

func keys(m map[int]bool) []int {
	var out []int
	for i := range 100 {
		if m[i] {
			out = append(out, i)
		}
	}
	return out
}
