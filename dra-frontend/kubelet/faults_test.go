// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

var errOnce = errors.New("once")

// faulty is a directory in which one read of readFails and one write of
// writeFails fail, the write after so many that succeed.
type faulty struct {
	ledger.Directory
	readFails, writeFails string
	after                 int
}

func (f *faulty) Read(name string) ([]byte, error) {
	if name == f.readFails {
		f.readFails = ""
		return nil, errOnce
	}
	return f.Directory.Read(name)
}

func (f *faulty) Write(name string, data []byte) error {
	if name == f.writeFails {
		if f.after--; f.after < 0 {
			f.writeFails = ""
			return errOnce
		}
	}
	return f.Directory.Write(name, data)
}

// fail makes the node's directory a faulty one.
func (n *node) fail() *faulty {
	f := &faulty{}
	n.wrap = func(d ledger.Directory) ledger.Directory {
		f.Directory = d
		return f
	}
	n.restart()
	return f
}

// I1: a claim file that cannot be read once may hold any CPU, and its claim may
// have any pod. No decision of the call counts.
func TestClaimFileThatIsUnreadableOnce(t *testing.T) {
	n := newNode(t)
	held, other := n.claim(1, "numa-0", capacity{"cpu": "2"}), n.claim(2, "numa-0", capacity{"cpu": "2"})
	require.NoError(t, n.prepareAll(held))
	for _, claim := range []*resourceapi.ResourceClaim{other, held} {
		f := n.fail()
		f.readFails = contract.ClaimFile(uid(1))
		require.ErrorContains(t, n.prepareAll(claim), "cannot be read")
		require.Len(t, n.claimFiles(), 1)
	}
	require.NoError(t, n.prepareAll(held, other))
	require.Equal(t, "0-1,4-5", n.held().String())
}

// moved returns claim 1 as it was allocated anew on numa-1 for another pod: its first pod was deleted by force.
func (n *node) moved() *resourceapi.ResourceClaim {
	c := n.claim(1, "numa-1", capacity{"cpu": "2"})
	p := n.pods["pod-1"]
	p.UID = uid(77)
	n.pods["pod-1"] = p
	c.Status.ReservedFor[0].UID = types.UID(uid(77))
	return c
}

// I1: if the record of a claim that is decided anew cannot be written, no other
// claim of the call gets the CPUs of its former record.
func TestFormerRecordThatStays(t *testing.T) {
	n := newNode(t)
	moved, late := n.claim(1, "numa-0", capacity{"cpu": "2"}), n.claim(2, "numa-0", capacity{"cpu": "4"})
	require.NoError(t, n.prepareAll(moved))
	moved = n.moved()
	f := n.fail()
	f.writeFails = contract.ClaimFile(uid(1))
	require.ErrorIs(t, n.prepareAll(moved, late), errOnce)
	require.Equal(t, "0-1", n.held().String())
	require.NoError(t, n.prepareAll(moved, late))
	require.Equal(t, "0-5", n.held().String())
}

// I1: the claim file of a claim that is decided anew may be written and the node state that follows not. The node state of the
// next claim of the call counts the new claim file.
func TestRecordWithoutItsNodeState(t *testing.T) {
	n := newNode(t)
	moved, late := n.claim(1, "numa-0", capacity{"cpu": "2"}), n.claim(2, "numa-1", capacity{"cpu": "2"})
	require.NoError(t, n.prepareAll(moved))
	moved = n.moved()
	f := n.fail()
	f.writeFails, f.after = contract.NodeFile, 1
	require.ErrorIs(t, n.prepareAll(moved, late), errOnce)
	require.Empty(t, f.writeFails)
	require.Len(t, n.claimFiles(), 2)
	for i := range 2 {
		require.False(t, n.state().Shared.CPUs.Overlaps(n.record(i+1).CPUs()), "claim %d", i+1)
	}
	require.NoError(t, n.prepareAll(moved, late))
	require.Equal(t, "2-3,6-7", n.held().String())
}

// I1: a claim that keeps CPUs from before gives none of them to two of its
// results.
func TestKeptCPUsOfAnotherResult(t *testing.T) {
	n := newNode(t)
	claim := func(pod string) *resourceapi.ResourceClaim {
		c := n.claim(1, "numa-0", capacity{"cpu": "1"})
		results := &c.Status.Allocation.Devices.Results
		second := (*results)[0]
		share := types.UID(uid(3000))
		second.Request, second.ShareID = "second", &share
		*results = append(*results, second)
		p := n.pods["pod-1"]
		p.UID = pod
		n.pods["pod-1"] = p
		c.Status.ReservedFor[0].UID = types.UID(pod)
		return c
	}
	require.NoError(t, n.prepareAll(template(claim(uid(1001)))))
	zone := n.inventory.Zones["numa-0"]
	zone.CPUs = contract.CPUs(1, 4, 5)
	n.inventory.Zones["numa-0"] = zone
	n.restart()
	require.NoError(t, n.prepareAll(template(claim(uid(78)))))
	require.Equal(t, 2, n.record(1).CPUs().Size())
}

// A reservation is for a pod's UID. A pod of the same name that was made later does not
// take it over: it has none of the claim's values, and its own reservation comes later.
func TestReservationOfAFormerPod(t *testing.T) {
	n := newNode(t)
	former := n.claim(1, "numa-0", capacity{"cpu": "1"})
	later := n.pods["pod-1"]
	later.UID = uid(3001)
	n.pods["pod-1"] = later
	_, err := n.prepare(former)
	require.ErrorContains(t, err, "claim default/claim-1 is not reserved for any pod that exists")
	require.Empty(t, n.claimFiles())

	// Beside it a pod that has a reservation gets the claim, and the later pod does not.
	other := n.pods["pod-1"]
	other.Name, other.UID = "pod-2", uid(1002)
	n.pods["pod-2"] = other
	former.Status.ReservedFor = append(former.Status.ReservedFor,
		resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "pod-2", UID: types.UID(uid(1002))})
	_, err = n.prepare(former)
	require.NoError(t, err)
	require.Equal(t, []contract.PodRecord{{UID: uid(1002), QOS: contract.LevelBurstable}}, n.record(1).Pods)
	require.NotContains(t, n.state().Pods, uid(3001))
}
