// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/ledger"
)

// join calls Join with what the watcher keeps of the claim. The API server has the whole claim.
func (n *node) join(c *resourceapi.ResourceClaim) error {
	n.claims[c.Name] = c
	shown := c.DeepCopy()
	shown.ObjectMeta = metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	shown.Spec = resourceapi.ResourceClaimSpec{}
	shown.Status.Allocation.Devices.Config = nil
	return n.driver.Join(context.Background(), shown)
}

// late reserves the claim for one more pod.
func (n *node) late(c *resourceapi.ResourceClaim, name string, i int) {
	n.pods[name] = decision.Pod{
		Name: name, PodRecord: contract.PodRecord{UID: uid(i), QOS: contract.LevelBestEffort},
		Containers: []decision.Container{{Name: "main", BesideMain: true, Claims: []decision.ClaimReference{{Claim: c.Name}}}},
	}
	c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
		Resource: "pods", Name: name, UID: types.UID(uid(i)),
	})
}

// A20: later pods share the CPUs of a prepared claim, and the running
// containers do not change.
func TestJoin(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.True(t, n.record(1).Joinable)
	before := n.record(1)

	require.NoError(t, n.join(c), "nobody new")
	require.Equal(t, before, n.record(1))

	n.late(c, "late", 5)
	require.NoError(t, n.join(c))
	require.Equal(t, []string{uid(1)}, n.state().Pods[uid(5)].Claims)
	require.Equal(t, []string{uid(1)}, n.state().Pods[uid(1001)].Claims)
	require.Equal(t, before.Results, n.record(1).Results)

	// The pods stay after a restart, and so does the first answer (I8).
	n.restart()
	requireReconciled(t, n.driver)
	require.Contains(t, n.state().Pods, uid(5))
	_, err = n.prepare(c)
	require.NoError(t, err)
	require.NoError(t, n.unprepare(1))
	require.Empty(t, n.state().Pods)
}

// A prepared claim keeps its quota after the configuration has another one, for pods that come later too.
func TestJoinAfterAnotherConfiguration(t *testing.T) {
	n := newNode(t)
	n.features = append(n.features, contract.FeatureQuota)
	n.config.CPU.Quota = config.None
	n.restart()
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	n.config = config.Default()
	n.restart()
	requireReconciled(t, n.driver)

	n.late(c, "late", 5)
	p := n.pods["late"]
	p.CPULimit = &contract.CPULimit{Milli: 500}
	n.pods["late"] = p
	require.NoError(t, n.join(c))
	require.Equal(t, contract.NoQuota, n.state().Pods[uid(5)].Quota)
}

// listed counts the calls that read the whole directory.
type listed struct {
	ledger.Directory
	count *int
}

func (d listed) List() ([]fs.FileInfo, error) {
	*d.count++
	return d.Directory.List()
}

// A look at a claim without a new pod reads no other claim's file, and does not wait for the directory's lock: all claims
// are looked at again and again.
func TestJoinWithoutNewPods(t *testing.T) {
	n := newNode(t)
	count := 0
	n.wrap = func(d ledger.Directory) ledger.Directory { return listed{d, &count} }
	n.restart()
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	count = 0
	release, err := cdidir.NewLock(n.lock).Acquire()
	require.NoError(t, err)
	require.NoError(t, n.join(c))
	require.NoError(t, release())
	require.Zero(t, count)
	n.late(c, "late", 5)
	require.NoError(t, n.join(c))
	require.Positive(t, count, "a new pod changes the node state, which follows from all claims")
	require.Contains(t, n.state().Pods, uid(5))
}

// Pods share a claim that an operator made, as they share any named claim. Pods
// that have ended are removed from its record, because a claim that is always
// in use would outgrow it.
func TestJoinAfterJoin(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Controller: new(true)}}
	_, err := n.prepare(c)
	require.NoError(t, err)
	for i := range 3 {
		n.late(c, "late", 5+i)
		require.NoError(t, n.join(c))
		require.Len(t, n.record(1).Pods, 2)
		require.Contains(t, n.state().Pods, uid(5+i))
		c.Status.ReservedFor = c.Status.ReservedFor[:1]
	}
}

// Pods in the record are not read, because the same claim is delivered again
// and again.
func TestJoinReadsTheLatePodsOnly(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	delete(n.pods, "pod-1")
	n.late(c, "late", 5)
	require.NoError(t, n.join(c))
	require.Contains(t, n.state().Pods, uid(5))
	require.Contains(t, n.state().Pods, uid(1001), "still reserved")
}

func TestNobodyJoins(t *testing.T) {
	for name, tc := range map[string]struct {
		capacity capacity
		change   func(*resourceapi.ResourceClaim)
	}{
		"memory": {capacity{"cpu": "2", "memory": "1Gi"}, func(*resourceapi.ResourceClaim) {}},
		"a pod's own": {capacity{"cpu": "2"}, func(c *resourceapi.ResourceClaim) {
			template(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c := n.claim(1, "numa-0", tc.capacity)
			tc.change(c)
			_, err := n.prepare(c)
			require.NoError(t, err)
			require.False(t, n.record(1).Joinable)
			n.late(c, "late", 5)
			require.NoError(t, n.join(c))
			require.NotContains(t, n.state().Pods, uid(5))
		})
	}
	t.Run("another allocation", func(t *testing.T) {
		n := newNode(t)
		c := n.claim(1, "numa-0", capacity{"cpu": "2"})
		_, err := n.prepare(c)
		require.NoError(t, err)
		c.Status.Allocation.Devices.Results[0].Device = "numa-1"
		n.late(c, "late", 5)
		require.NoError(t, n.join(c))
		require.NotContains(t, n.state().Pods, uid(5))
	})
	t.Run("not prepared", func(t *testing.T) {
		n := newNode(t)
		require.NoError(t, n.join(n.claim(1, "numa-0", capacity{"cpu": "2"})))
		require.Empty(t, n.claimFiles())
	})
}

// I4: on a blocked node no pod joins a claim.
func TestJoinOnABlockedNode(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, contract.ClaimFile(uid(9))), []byte("{"), 0o600))
	n.late(c, "late", 5)
	require.ErrorContains(t, n.join(c), contract.ClaimFile(uid(9)))
	require.False(t, slices.ContainsFunc(n.record(1).Pods, func(p contract.PodRecord) bool { return p.UID == uid(5) }))
}
