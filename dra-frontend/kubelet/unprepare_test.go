// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

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

// The claims of one call are released together: the node state changes once, because each state
// makes the actuator look at all containers. A UID that is none is refused, and the claims beside it
// are released.
func TestUnprepareOfManyClaims(t *testing.T) {
	n := newNode(t)
	var objects []kubeletplugin.NamespacedObject
	for i := range 4 {
		_, err := n.prepare(n.claim(i, "numa-0", capacity{"cpu": "1"}))
		require.NoError(t, err)
		objects = append(objects, kubeletplugin.NamespacedObject{UID: types.UID(uid(i))})
	}
	before := n.state().Generation
	objects = append(objects[:3], kubeletplugin.NamespacedObject{UID: "../x"}, kubeletplugin.NamespacedObject{UID: types.UID(uid(9))})
	results, err := n.driver.UnprepareResourceClaims(t.Context(), objects)
	require.NoError(t, err)
	require.Len(t, results, len(objects))
	for _, object := range objects {
		if object.UID == "../x" {
			require.ErrorContains(t, results[object.UID], "is not an object UID")
			continue
		}
		require.Contains(t, results, object.UID)
		require.NoError(t, results[object.UID], object.UID)
	}
	require.Equal(t, before+1, n.state().Generation)
	require.Equal(t, []string{filepath.Join(n.dir, contract.ClaimFile(uid(3)))}, n.claimFiles())
	require.Equal(t, 7, n.state().Shared.CPUs.Size(), "I3")
}
