// SPDX-License-Identifier: Apache-2.0

package podclaims_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
)

func claim(name, uid string, reserved ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, pod := range reserved {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: pod})
	}
	return c
}

func record(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "default", Name: name, UID: uid}
}

// joinable is a record of a claim that pods can share.
func joinable(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "default", Name: name, UID: uid, Joinable: true}
}

func own(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "default", Name: name, UID: uid, OwnedByPod: true}
}

func TestFollow(t *testing.T) {
	client := fake.NewClientset(claim("a", "a1", "one"), claim("b", "another", "one"),
		claim("shared", "shared1", "one"), claim("own", "own1", "one"))
	shown := make(chan *resourceapi.ResourceClaim)
	// A state that join failed for is delivered again.
	var tried atomic.Bool
	w := podclaims.NewWatcher(client, zap.NewNop(), 200*time.Millisecond, func(_ context.Context, c *resourceapi.ResourceClaim) error {
		if !tried.Swap(true) {
			return errors.New("not now")
		}
		select {
		case shown <- c:
		case <-t.Context().Done():
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	w.Follow(ctx, []contract.ClaimRecord{record("a", "a1"), record("b", "b1"), joinable("shared", "shared1"), own("own", "own1")})
	for seen := map[string]bool{}; !seen["a"] || !seen["shared"]; {
		seen[(<-shown).Name] = true
	}

	_, err := client.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, claim("a", "a1", "one", "two"), metav1.UpdateOptions{})
	require.NoError(t, err)
	for c := range shown {
		require.Contains(t, []string{"a", "shared"}, c.Name, "the others are another claim of that name, and a pod's own")
		if len(c.Status.ReservedFor) == 2 {
			break
		}
	}

	w.Follow(ctx, nil)
	drained := make(chan struct{})
	go func() { w.Wait(); close(drained) }()
	for open := true; open; {
		select {
		case <-shown: // a delivery that was under way
		case <-drained:
			open = false
		}
	}
	stop()
}
