// SPDX-License-Identifier: Apache-2.0

package podclaims_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	clienttesting "k8s.io/client-go/testing"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/podclaims"
)

// claim returns a claim in a namespace of its own: the fake client does not select claims by their name.
func claim(name, uid string, reserved ...string) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "of-" + name, Name: name, UID: types.UID(uid)}}
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for _, pod := range reserved {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{
			Resource: "pods", Name: pod, UID: types.UID("uid-of-" + pod),
		})
	}
	return c
}

func record(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "of-" + name, Name: name, UID: uid}
}

// joinable is a record of a claim that pods can share.
func joinable(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "of-" + name, Name: name, UID: uid, Joinable: true}
}

func own(name, uid string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "of-" + name, Name: name, UID: uid, OwnedByPod: true}
}

// watching starts a watcher. joined returns when join was called; join returns the errors, one after the other, and then nil.
func watching(t *testing.T, client *fake.Clientset, errs ...error) (w *podclaims.Watcher, joined func() []time.Duration) {
	t.Helper()
	var (
		began = time.Now()
		mu    sync.Mutex
		calls []time.Duration
	)
	w = podclaims.NewWatcher(client, zap.NewNop(), func(context.Context, *resourceapi.ResourceClaim) error {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, time.Since(began))
		if n := len(calls); n <= len(errs) {
			return errs[n-1]
		}
		return nil
	})
	t.Cleanup(w.Wait)
	return w, func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
}

func TestFollow(t *testing.T) {
	client := fake.NewClientset(claim("a", "a1", "one"), claim("b", "another", "one"),
		claim("shared", "shared1", "one"), claim("own", "own1", "one"))
	shown := make(chan *resourceapi.ResourceClaim)
	// A state that join failed for is delivered again.
	var tried atomic.Bool
	w := podclaims.NewWatcher(client, zap.NewNop(), func(_ context.Context, c *resourceapi.ResourceClaim) error {
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

	_, err := client.ResourceV1().ResourceClaims("of-a").UpdateStatus(ctx, claim("a", "a1", "one", "two"), metav1.UpdateOptions{})
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

// A delivered claim is delivered again if its record lacks a pod, whatever the reason, and only then: the delivery of many
// claims at once takes noticeable CPU.
func TestDeliveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, joined := watching(t, fake.NewClientset(claim("a", "a1", "one")))
		complete, lacking := joinable("a", "a1"), joinable("a", "a1")
		complete.Pods = []contract.PodRecord{{UID: "uid-of-one"}}
		follow := func(r contract.ClaimRecord, want int, why string) {
			w.Follow(t.Context(), []contract.ClaimRecord{r})
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Len(t, joined(), want, why)
		}
		follow(complete, 1, "the first state")
		follow(complete, 1, "nothing is new")
		follow(lacking, 2, "the record was replaced")
		follow(lacking, 3, "and lacks the consumer still")
		follow(complete, 3, "nothing is new")
	})
}

// Follow is called after each change of a claim file. It does not shorten the pauses after an error; a new state of the claim
// ends the pause, and the pauses are short again.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := errors.New("a former pod runs")
		client := fake.NewClientset(claim("a", "a1", "one"))
		w, joined := watching(t, client, later, later, later, later, later, nil, later)
		const step = 130 * time.Millisecond // never at the end of a pause
		updated := false
		for i := range 100 {
			w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
			synctest.Wait()
			if len(joined()) == 4 && !updated {
				updated = true
				require.Equal(t, 54, i)
				_, err := client.ResourceV1().ResourceClaims("of-a").UpdateStatus(t.Context(), claim("a", "a1", "two"), metav1.UpdateOptions{})
				require.NoError(t, err)
			}
			time.Sleep(step)
		}
		const second = time.Second
		require.Equal(t, []time.Duration{0, second, 3 * second, 7 * second, // doubled pauses
			54 * step, 54*step + second, // the new state
			62 * step, 62*step + second, // Follow, after a success
		}, joined()[:8])
	})
}

// A former pod can run on for long, and nothing but the next try shows that it has ended.
func TestLongestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, joined := watching(t, fake.NewClientset(claim("a", "a1", "one")), slices.Repeat([]error{errors.New("a former pod runs")}, 100)...)
		w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		const second = time.Second
		require.Equal(t, []time.Duration{0, second, 3 * second, 7 * second, 15 * second, 25 * second, 35 * second, 45 * second, 55 * second},
			joined())
	})
}

// A claim that itself is why join fails is tried again less and less: each try reads the claim's pods. An error of another kind
// shortens the pause again.
func TestLongestPauseOfClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := slices.Repeat([]error{decision.Because(decision.ReasonClaim, errors.New("memory cannot be shared"))}, 8)
		errs = append(errs, slices.Repeat([]error{errors.New("the API server is away")}, 2)...)
		w, joined := watching(t, fake.NewClientset(claim("a", "a1", "one")), errs...)
		w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		const second = time.Second
		require.Equal(t, []time.Duration{0, second, 3 * second, 7 * second, 15 * second, 31 * second, 63 * second, 123 * second,
			183 * second, 193 * second, 203 * second}, joined())
	})
}

// A claim can have a MiB of what its author writes. The watcher keeps what Join needs.
func TestKeptState(t *testing.T) {
	c := claim("a", "a1", "one")
	long := strings.Repeat("x", 1000)
	c.Annotations, c.Labels = map[string]string{"a": long}, map[string]string{"l": long}
	c.Finalizers = []string{long}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: long}}
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{Requests: []string{long}}}
	share, admin := types.UID("s"), false
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "r", Driver: "d", Pool: "p", Device: "v", ShareID: &share, AdminAccess: &admin,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"cpu": resource.MustParse("2")},
	}
	whole := result
	whole.Tolerations, whole.BindingConditions = []resourceapi.DeviceToleration{{Key: long}}, []string{long}
	c.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{whole}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Device: long}}

	shown := make(chan *resourceapi.ResourceClaim, 1)
	w := podclaims.NewWatcher(fake.NewClientset(c), zap.NewNop(), func(_ context.Context, c *resourceapi.ResourceClaim) error {
		shown <- c
		return nil
	})
	t.Cleanup(w.Wait)
	w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
	want := claim("a", "a1", "one")
	want.Status.Allocation.Devices.Results = []resourceapi.DeviceRequestAllocationResult{result}
	require.Equal(t, want, <-shown)
}

// A claim that was deallocated, deleted or replaced is not delivered any more.
func TestNoLongerAllocated(t *testing.T) {
	deallocated := claim("a", "a1", "one")
	deallocated.Status.Allocation = nil
	for name, end := range map[string]func(*testing.T, resourceclient.ResourceClaimInterface) error{
		"deallocated": func(t *testing.T, c resourceclient.ResourceClaimInterface) error {
			_, err := c.UpdateStatus(t.Context(), deallocated, metav1.UpdateOptions{})
			return err
		},
		"deleted": func(t *testing.T, c resourceclient.ResourceClaimInterface) error {
			return c.Delete(t.Context(), "a", metav1.DeleteOptions{})
		},
		"another claim": func(t *testing.T, c resourceclient.ResourceClaimInterface) error {
			_, err := c.Update(t.Context(), claim("a", "a2", "one"), metav1.UpdateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(claim("a", "a1", "one"))
				w, joined := watching(t, client, errors.New("a former pod runs"))
				w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
				synctest.Wait()
				require.Len(t, joined(), 1)
				require.NoError(t, end(t, client.ResourceV1().ResourceClaims("of-a")))
				synctest.Wait()
				w.Follow(t.Context(), []contract.ClaimRecord{joinable("a", "a1")})
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Len(t, joined(), 1)
				if name == "deallocated" {
					_, err := client.ResourceV1().ResourceClaims("of-a").UpdateStatus(t.Context(), claim("a", "a1", "two"), metav1.UpdateOptions{})
					require.NoError(t, err)
					synctest.Wait()
					require.Len(t, joined(), 2, "allocated again")
				}
			})
		})
	}
}

// The API server sends the claim that is followed, and none of the namespace's other claims.
func TestOnlyTheClaimIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(claim("a", "a1", "one"))
		w, joined := watching(t, client)
		w.Follow(t.Context(), []contract.ClaimRecord{record("a", "a1")})
		synctest.Wait()
		require.NotEmpty(t, joined())
		asked := 0
		for _, action := range client.Actions() {
			switch a := action.(type) {
			case clienttesting.ListAction:
				asked++
				require.Equal(t, "metadata.name=a", a.GetListRestrictions().Fields.String())
			case clienttesting.WatchAction:
				asked++
				require.Equal(t, "metadata.name=a", a.GetWatchRestrictions().Fields.String())
			}
		}
		require.Positive(t, asked)
	})
}

// A reason is logged when it is new, and again after join has succeeded.
func TestReasonsAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(claim("a", "a1", "one"))
		core, logs := observer.New(zap.WarnLevel)
		errs := []error{errors.New("x"), errors.New("x"), errors.New("y"), errors.New("y"), nil, errors.New("y")}
		w := podclaims.NewWatcher(client, zap.New(core), func(context.Context, *resourceapi.ResourceClaim) error {
			if len(errs) == 0 {
				return nil
			}
			err := errs[0]
			errs = errs[1:]
			return err
		})
		t.Cleanup(w.Wait)
		w.Follow(t.Context(), []contract.ClaimRecord{record("a", "a1")})
		time.Sleep(time.Minute)
		_, err := client.ResourceV1().ResourceClaims("of-a").UpdateStatus(t.Context(), claim("a", "a1", "one", "two"), metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		var reasons []string
		for _, l := range logs.All() {
			reasons = append(reasons, l.ContextMap()["error"].(string))
		}
		require.Equal(t, []string{"x", "y", "y"}, reasons)
	})
}

// The watches of many claims begin one after the other: Prepare shares the client's rate.
func TestWatchesBeginAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var claims []contract.ClaimRecord
		client := fake.NewClientset()
		for i := range 100 {
			name := fmt.Sprintf("c%d", i)
			require.NoError(t, client.Tracker().Add(claim(name, name, "one")))
			claims = append(claims, record(name, name))
		}
		w, joined := watching(t, client)
		w.Follow(t.Context(), claims)
		synctest.Wait()
		require.Len(t, joined(), 20)
		time.Sleep(4*time.Second + 50*time.Millisecond)
		synctest.Wait()
		require.Len(t, joined(), 60)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Len(t, joined(), 100)
	})
}

// An API server that takes a call and never answers it holds a claim up for a while only.
func TestJoinEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var joined atomic.Int32
		w := podclaims.NewWatcher(fake.NewClientset(claim("a", "a1", "one")), zap.NewNop(),
			func(ctx context.Context, _ *resourceapi.ResourceClaim) error {
				if joined.Add(1) == 1 {
					<-ctx.Done()
				}
				return ctx.Err()
			})
		t.Cleanup(w.Wait)
		w.Follow(t.Context(), []contract.ClaimRecord{record("a", "a1")})
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 2, joined.Load())
	})
}
