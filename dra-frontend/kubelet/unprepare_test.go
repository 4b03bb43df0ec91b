// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

// unreadable is a directory in which the first reads of one file fail.
type unreadable struct {
	ledger.Directory
	name  string
	times int
}

func (u *unreadable) Read(name string) ([]byte, error) {
	if name == u.name && u.times > 0 {
		u.times--
		return nil, errors.New("input/output error")
	}
	return u.Directory.Read(name)
}

// A70, I1: the CPUs of a claim file that cannot be read while another claim is
// released do not get into the pool.
func TestUnprepareBesideAReadError(t *testing.T) {
	for times, pool := range map[int]string{
		1: "0-1,4-7", // the file is read again after the release
		2: "4-7",     // the file is not read: the pool does not grow
	} {
		n := newNode(t)
		for i, zone := range []string{1: "numa-0", 2: "numa-1"} {
			if zone != "" {
				_, err := n.prepare(n.claim(i, zone, capacity{"cpu": "2"}))
				require.NoError(t, err)
			}
		}
		require.Equal(t, "4-7", n.state().Shared.CPUs.String())
		n.wrap = func(d ledger.Directory) ledger.Directory {
			return &unreadable{Directory: d, name: contract.ClaimFile(uid(2)), times: times}
		}
		n.restart()
		require.NoError(t, n.unprepare(1))
		require.Equal(t, pool, n.state().Shared.CPUs.String(), "%d failed reads", times)
		requireReconciled(t, n.driver)
		require.Equal(t, "0-1,4-7", n.state().Shared.CPUs.String())
	}
}

// A claim is released although no CPU of the pool is online. Kubelet would ask
// for ever otherwise, and the pod would stay. The pool does not change until it
// can have a CPU.
func TestUnprepareWithoutAPool(t *testing.T) {
	n := newNode(t)
	for i, zone := range []string{1: "numa-0", 2: "numa-1"} {
		if zone != "" {
			_, err := n.prepare(n.claim(i, zone, capacity{"cpu": "2"}))
			require.NoError(t, err)
		}
	}
	_, err := n.prepare(n.claim(3, "numa-1", capacity{"memory": "1Gi"}))
	require.NoError(t, err)
	before := n.state()
	offline := t2()
	offline.Base.CPUs = contract.CPUs(0, 1, 2, 3)
	n.driver.SetInventory(offline)

	require.NoError(t, n.unprepare(3))
	require.Len(t, n.claimFiles(), 2)
	require.Equal(t, before, n.state(), "the pool never becomes empty")
	require.NoError(t, n.unprepare(3), "twice is success")
	_, err = n.driver.Reconcile()
	require.ErrorContains(t, err, "no CPU would be left", "the node says why it takes no new claims")

	require.NoError(t, n.unprepare(2))
	require.Equal(t, "2-3", n.state().Shared.CPUs.String())
	require.NotContains(t, n.state().Pods, uid(1003))
}
