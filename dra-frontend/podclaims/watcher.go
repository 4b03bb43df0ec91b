// SPDX-License-Identifier: Apache-2.0

package podclaims

import (
	"context"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Join gets the latest state of a claim, again and again until it returns no
// error.
type Join func(ctx context.Context, claim *resourceapi.ResourceClaim) error

// Watcher watches the prepared claims that may get more consumers. Kubelet does
// not call the driver for a pod that comes later, but the claim's status names the
// pod. Few claims are watched: a claim from a template has one pod for ever.
type Watcher struct {
	client kubernetes.Interface
	log    *zap.Logger
	join   Join
	resync time.Duration

	watched map[string]context.CancelFunc
	done    sync.WaitGroup
}

// NewWatcher returns a watcher of no claims. resync is how often a claim without a
// change is delivered again.
func NewWatcher(client kubernetes.Interface, log *zap.Logger, resync time.Duration, join Join) *Watcher {
	return &Watcher{client: client, log: log, join: join, resync: resync, watched: make(map[string]context.CancelFunc)}
}

// Follow watches the claims that are not from a template, and no other claims,
// until ctx ends.
func (w *Watcher) Follow(ctx context.Context, claims []contract.ClaimRecord) {
	gone := maps.Clone(w.watched)
	for _, c := range claims {
		// A record of an older frontend does not have OwnedByPod; its claim is
		// watched.
		if c.OwnedByPod {
			continue
		}
		if _, watched := w.watched[c.UID]; watched {
			delete(gone, c.UID)
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		w.watched[c.UID] = stop
		w.done.Go(func() { w.watch(ctx, c) })
	}
	for uid, stop := range gone {
		stop()
		delete(w.watched, uid)
	}
}

// Wait returns when every watch has ended.
func (w *Watcher) Wait() { w.done.Wait() }

func (w *Watcher) watch(ctx context.Context, c contract.ClaimRecord) {
	// Only the latest state of the claim matters.
	latest := make(chan *resourceapi.ResourceClaim, 1)
	show := func(object any) {
		claim, is := object.(*resourceapi.ResourceClaim)
		// A claim with the same name and another UID is another claim.
		if !is || string(claim.UID) != c.UID || claim.Status.Allocation == nil {
			return
		}
		select {
		case <-latest:
		default:
		}
		latest <- claim
	}
	// Of client-go's informers only this one: package informers would link those of all
	// kinds into the daemon.
	api := w.client.ResourceV1().ResourceClaims(c.Namespace)
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name).String()
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = name
				return api.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = name
				return api.Watch(ctx, o)
			},
		}, w.client),
		ObjectType:   &resourceapi.ResourceClaim{},
		ResyncPeriod: w.resync,
		Handler:      cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, object any) { show(object) }},
	})
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	w.deliver(ctx, c, latest)
	running.Wait()
}

// firstPause is the time between a failure and the next try. It doubles up to
// resync.
const firstPause = time.Second

// deliver calls join with the latest state until join succeeds, or until there
// is a later state.
func (w *Watcher) deliver(ctx context.Context, c contract.ClaimRecord, latest <-chan *resourceapi.ResourceClaim) {
	var claim *resourceapi.ResourceClaim
	pause := firstPause
	complaint := ""
	for {
		var again <-chan time.Time
		if claim != nil {
			again = time.After(pause)
			pause = min(2*pause, w.resync)
		}
		select {
		case <-ctx.Done():
			return
		case claim = <-latest:
			pause = firstPause
		case <-again:
		}
		err := w.join(ctx, claim)
		if err == nil {
			claim, complaint = nil, ""
			continue
		}
		// In most cases a former pod has not ended.
		if ctx.Err() == nil && err.Error() != complaint {
			complaint = err.Error()
			w.log.Warn("pods have the claim and do not get it yet, tried again",
				zap.String("claim", c.Namespace+"/"+c.Name), zap.Error(err))
		}
	}
}
