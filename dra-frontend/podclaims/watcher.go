// SPDX-License-Identifier: Apache-2.0

package podclaims

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
)

// Join gets the latest state of a claim, again and again until it returns no
// error. A state has the claim's name and UID, its consumers, and what was allocated: no parameters.
type Join func(ctx context.Context, claim *resourceapi.ResourceClaim) error

// Watcher watches the prepared claims that may get more consumers. Kubelet does
// not call the driver for a pod that comes later, but the claim's status names the
// pod. Few claims are watched: a claim from a template has one pod for ever.
type Watcher struct {
	client kubernetes.Interface
	log    *zap.Logger
	join   Join
	// pace leaves the client's rate to Prepare when the watches of many claims begin at once.
	pace flowcontrol.RateLimiter

	watched map[string]*watched
	done    sync.WaitGroup
}

// watched is what the watcher keeps of one claim.
type watched struct {
	stop context.CancelFunc
	// latest is the latest state of the claim, nil while the claim is not known to be allocated.
	latest atomic.Pointer[resourceapi.ResourceClaim]
	// look asks for a call of join with the latest state.
	look chan struct{}
}

func (w *watched) ask() {
	select {
	case w.look <- struct{}{}:
	default: // asked already
	}
}

const (
	// watchesPerSecond, after a burst, is how many watches begin. A watch begins with one call or two.
	watchesPerSecond, burst = 10, 20
	// joinTimeout limits one call of join.
	joinTimeout = time.Minute
)

// NewWatcher returns a watcher of no claims.
func NewWatcher(client kubernetes.Interface, log *zap.Logger, join Join) *Watcher {
	return &Watcher{
		client: client, log: log, join: join, pace: flowcontrol.NewTokenBucketRateLimiter(watchesPerSecond, burst),
		watched: make(map[string]*watched),
	}
}

// Follow watches the claims that are not from a template, and no other claims,
// until ctx ends. Claims with a pod that their record lacks are delivered again: a
// record can change after its claim was delivered. So the caller calls Follow now and
// then with the same claims too.
func (w *Watcher) Follow(ctx context.Context, claims []contract.ClaimRecord) {
	gone := maps.Clone(w.watched)
	for _, c := range claims {
		// A record of an older frontend does not have OwnedByPod; its claim is
		// watched.
		if c.OwnedByPod {
			continue
		}
		delete(gone, c.UID)
		if known := w.watched[c.UID]; known != nil {
			if claim := known.latest.Load(); claim != nil && len(decision.Late(claim, c)) > 0 {
				known.ask()
			}
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		added := &watched{stop: stop, look: make(chan struct{}, 1)}
		w.watched[c.UID] = added
		w.done.Go(func() { w.watch(ctx, c, added) })
	}
	for uid, known := range gone {
		known.stop()
		delete(w.watched, uid)
	}
}

// Wait returns when every watch has ended.
func (w *Watcher) Wait() { w.done.Wait() }

// watch delivers the states of one claim until ctx ends.
func (w *Watcher) watch(ctx context.Context, c contract.ClaimRecord, known *watched) {
	api := w.client.ResourceV1().ResourceClaims(c.Namespace)
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name).String()
	// A reflector without an informer: a node may have hundreds of such claims, and an informer has more goroutines for each.
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = name
			return api.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = name
			return api.Watch(ctx, o)
		},
	}, w.client), &resourceapi.ResourceClaim{}, &store{uid: c.UID, watched: known}, cache.ReflectorOptions{})
	var running sync.WaitGroup
	running.Go(func() {
		if w.pace.Wait(ctx) == nil {
			reflector.RunWithContext(ctx)
		}
	})
	w.deliver(ctx, c, known)
	running.Wait()
}

// store takes what the reflector of one claim gets from the API server. It implements cache.ReflectorStore.
type store struct {
	uid string
	*watched
}

// Add keeps the claim as the latest state.
func (s *store) Add(object any) error {
	claim, is := object.(*resourceapi.ResourceClaim)
	// A claim with the same name and another UID is another claim.
	if !is || string(claim.UID) != s.uid || claim.Status.Allocation == nil {
		s.latest.Store(nil)
		return nil
	}
	s.latest.Store(state(claim))
	s.ask()
	return nil
}

// state returns what is kept of a claim. Its labels, annotations and parameters can have more than a MiB, and a node may have
// hundreds of such claims.
func state(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	var results []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		results = append(results, resourceapi.DeviceRequestAllocationResult{
			Request: r.Request, Driver: r.Driver, Pool: r.Pool, Device: r.Device,
			AdminAccess: r.AdminAccess, ShareID: r.ShareID, ConsumedCapacity: r.ConsumedCapacity,
		})
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}},
			ReservedFor: claim.Status.ReservedFor,
		},
	}
}

// Update does the same as Add.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete forgets the claim.
func (s *store) Delete(any) error {
	s.latest.Store(nil)
	return nil
}

// Replace takes a list, which has the claim or is empty.
func (s *store) Replace(objects []any, _ string) error {
	if len(objects) == 0 {
		return s.Delete(nil)
	}
	return s.Add(objects[0])
}

// Resync does nothing: Follow asks again.
func (s *store) Resync() error { return nil }

// joinWithin calls join with a time limit: an API server that does not answer must not hold up later states of the claim.
func (w *Watcher) joinWithin(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	return w.join(ctx, claim)
}

// firstPause is the time between a failure of join and the next try. It doubles up
// to lastPause, and up to lastPauseOfClaim if the claim itself is why. Then mostly only a change of the claim helps, and each
// try reads the claim's pods and the other claims of these pods.
const (
	firstPause       = time.Second
	lastPause        = 10 * time.Second
	lastPauseOfClaim = time.Minute
)

// deliver calls join with the latest state when it is asked to, and again until
// join succeeds. A later state does not wait for the next try.
func (w *Watcher) deliver(ctx context.Context, c contract.ClaimRecord, known *watched) {
	var (
		claim     *resourceapi.ResourceClaim // the state that join got last
		again     <-chan time.Time           // nil unless join has failed
		pause     = firstPause
		complaint string
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-known.look:
		case <-again:
			again = nil
		}
		switch latest := known.latest.Load(); {
		case latest == nil:
			again = nil
			continue
		case latest != claim:
			claim, again, pause = latest, nil, firstPause
		case again != nil:
			continue // the next try is soon enough
		}
		err := w.joinWithin(ctx, claim)
		if err == nil {
			pause, complaint = firstPause, ""
			continue
		}
		last := lastPause
		if decision.ReasonOf(err) == decision.ReasonClaim {
			last = lastPauseOfClaim
		}
		pause = min(pause, last)
		again = time.After(pause)
		pause *= 2
		// In most cases a former pod has not ended.
		if ctx.Err() == nil && err.Error() != complaint {
			complaint = err.Error()
			w.log.Warn("the claim does not serve all its pods yet; the frontend tries again",
				zap.String("claim", c.Namespace+"/"+c.Name), zap.Error(err))
		}
	}
}
