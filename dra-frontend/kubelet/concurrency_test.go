// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// slow answers for the pod called name when answer is closed, and for other
// pods at once.
type slow struct {
	kubelet.Pods
	name          string
	asked, answer chan struct{}
}

func (s slow) Pod(ctx context.Context, namespace, name string) (decision.Pod, error) {
	if name == s.name {
		close(s.asked)
		<-s.answer
	}
	return s.Pods.Pod(ctx, namespace, name)
}

func newSlow(n *node, name string) slow {
	s := slow{name: name, asked: make(chan struct{}), answer: make(chan struct{})}
	n.wrapPods = func(p kubelet.Pods) kubelet.Pods {
		s.Pods = p
		return s
	}
	n.restart()
	return s
}

// counted counts the reads of pods.
type counted struct {
	kubelet.Pods
	reads *int
}

func (c counted) Pod(ctx context.Context, namespace, name string) (decision.Pod, error) {
	*c.reads++
	return c.Pods.Pod(ctx, namespace, name)
}

// A call reads each pod once, however many claims the pod has.
func TestPodIsReadOnce(t *testing.T) {
	n := newNode(t)
	first, second := n.claim(1, "numa-0", capacity{"cpu": "1"}), n.claim(2, "numa-0", capacity{"cpu": "1"})
	second.Status.ReservedFor = first.Status.ReservedFor
	reads := 0
	n.wrapPods = func(p kubelet.Pods) kubelet.Pods { return counted{p, &reads} }
	n.restart()
	_, err := n.driver.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{first, second})
	require.NoError(t, err)
	require.Equal(t, 1, reads)
}

// One slow read of the API server delays only the claim that needs it.
func TestSlowReadDelaysNoOtherClaim(t *testing.T) {
	n := newNode(t)
	first, second := n.claim(1, "numa-0", capacity{"cpu": "1"}), n.claim(2, "numa-0", capacity{"cpu": "1"})
	api := newSlow(n, "pod-1")
	done := make(chan error)
	go func() {
		_, err := n.prepare(first)
		done <- err
	}()
	<-api.asked
	_, err := n.prepare(second)
	require.NoError(t, err)
	require.NoError(t, n.unprepare(2))
	close(api.answer)
	require.NoError(t, <-done)
	require.Equal(t, "1-7", n.state().Shared.CPUs.String())
}

// A call that kubelet has given up writes nothing: kubelet may have released
// the claim, and would not release it again (I3).
func TestGivenUpCallPreparesNothing(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "1"})
	api := newSlow(n, "pod-1")
	ctx, giveUp := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		results, err := n.driver.PrepareResourceClaims(ctx, []*resourceapi.ResourceClaim{c})
		if err == nil {
			err = results[c.UID].Err
		}
		done <- err
	}()
	<-api.asked
	giveUp()
	require.NoError(t, n.unprepare(1))
	close(api.answer)
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, n.claimFiles())
	require.Equal(t, "0-7", n.state().Shared.CPUs.String())
}

// I1, I3: many calls run at a time, and two of them prepare each claim.
func TestCallsAtATime(t *testing.T) {
	n := newNode(t)
	var claims []*resourceapi.ResourceClaim
	for i := range 6 {
		claims = append(claims, n.claim(i+1, fmt.Sprintf("numa-%d", i%2), capacity{"cpu": "1"}))
	}
	for range 5 {
		var wg sync.WaitGroup
		for i, c := range claims {
			for range 2 {
				wg.Go(func() {
					results, err := n.driver.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c})
					if err != nil || results[c.UID].Err != nil {
						t.Errorf("claim %d: %v %v", i+1, err, results[c.UID].Err)
					}
				})
			}
			wg.Go(func() {
				if _, err := n.driver.Reconcile(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 6, n.held().Size())
		require.Equal(t, t2().Base.CPUs.Difference(n.held()), n.state().Shared.CPUs)
		for i := range claims {
			wg.Go(func() {
				if err := n.unprepare(i + 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Empty(t, n.claimFiles())
		require.Equal(t, "0-7", n.state().Shared.CPUs.String())
	}
}

// I1: a release that kubelet has given up does nothing when its turn comes: the
// claim may be prepared for the next pod by then.
func TestGivenUpCallReleasesNothing(t *testing.T) {
	n := newNode(t)
	_, err := n.prepare(n.claim(1, "numa-0", capacity{"cpu": "1"}))
	require.NoError(t, err)
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	id := types.UID(uid(1))
	results, err := n.driver.UnprepareResourceClaims(ctx, []kubeletplugin.NamespacedObject{
		{NamespacedName: types.NamespacedName{Namespace: "default", Name: "claim-1"}, UID: id},
	})
	require.NoError(t, err)
	require.ErrorIs(t, results[id], context.Canceled)
	require.Len(t, n.claimFiles(), 1)
	require.NoError(t, n.unprepare(1))
}
