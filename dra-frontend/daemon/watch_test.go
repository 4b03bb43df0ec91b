// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
)

// A20: after each look at the claim files, the watcher delivers the claim again while the claim's
// record lacks a consumer. The record can change after the claim, and then no event of the API server
// comes.
func TestEachLookFollowsTheClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOrphanage(t)
		claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "left", UID: claimUID}}
		claim.Status.Allocation = &resourceapi.AllocationResult{}
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "late", UID: "late"}}
		ctx, stop := context.WithCancel(t.Context())
		var delivered atomic.Int32
		d := &Daemon{o: n.o, driver: n.orphans.driver.(*kubelet.Driver)}
		d.joins = podclaims.NewWatcher(fake.NewClientset(claim), zap.NewNop(), func(context.Context, *resourceapi.ResourceClaim) error {
			delivered.Add(1)
			return nil
		})
		defer d.joins.Wait()
		defer stop()
		var o observation
		for look := range int32(3) {
			o = d.reconcile(ctx, o)
			require.Len(t, o.claims, 1)
			time.Sleep(time.Minute) // longer than client-go takes to deliver the first state
			require.Equal(t, look+1, delivered.Load())
		}
	})
}
