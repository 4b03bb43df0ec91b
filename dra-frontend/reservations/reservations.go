// SPDX-License-Identifier: Apache-2.0

// Package reservations follows the claims that other pods may have after they
// were prepared. Kubelet does not tell the driver of such pods; the claim's status
// does, so each of these claims is watched while it is prepared here. They are
// few: a claim made from a template has one pod, for ever.
package reservations

import (
	"context"
	"maps"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Join is told of the latest state of a claim, until it succeeds.
type Join func(ctx context.Context, claim *resourceapi.ResourceClaim) error

// Watcher watches claims.
type Watcher struct {
	client kubernetes.Interface
	log    *zap.Logger
	join   Join
	resync time.Duration

	watched map[string]context.CancelFunc
	done    sync.WaitGroup
}

// New returns a watcher of nothing. resync is how often a claim is shown again
// without a change.
func New(client kubernetes.Interface, log *zap.Logger, resync time.Duration, join Join) *Watcher {
	return &Watcher{client: client, log: log, join: join, resync: resync, watched: make(map[string]context.CancelFunc)}
}

// Follow watches exactly the claims that are no template's, until ctx ends.
func (w *Watcher) Follow(ctx context.Context, claims []contract.ClaimRecord) {
	gone := maps.Clone(w.watched)
	for _, c := range claims {
		// Records of an older frontend do not say it: their claims are followed.
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

// Wait returns when nothing is watched any more.
func (w *Watcher) Wait() { w.done.Wait() }

func (w *Watcher) watch(ctx context.Context, c contract.ClaimRecord) {
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, w.resync, informers.WithNamespace(c.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, c.Name).String()
		}))
	// Only the latest state of the claim matters.
	latest := make(chan *resourceapi.ResourceClaim, 1)
	show := func(object any) {
		claim, is := object.(*resourceapi.ResourceClaim)
		// Another claim of the same name has a life of its own.
		if !is || string(claim.UID) != c.UID || claim.Status.Allocation == nil {
			return
		}
		select {
		case <-latest:
		default:
		}
		latest <- claim
	}
	informer := factory.Resource().V1().ResourceClaims().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: show, UpdateFunc: func(_, object any) { show(object) },
	}); err != nil {
		w.log.Error("claim not watched", zap.String("claim", c.Namespace+"/"+c.Name), zap.Error(err))
		return
	}
	factory.StartWithContext(ctx)
	w.deliver(ctx, c, latest)
	factory.Shutdown()
}

// firstPause is between a failure and the next try; it doubles up to the resync.
const firstPause = time.Second

// deliver tells join of the latest state, again and again until it succeeds or
// there is a later one.
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
		// Mostly it waits for a pod that is ending.
		if ctx.Err() == nil && err.Error() != complaint {
			complaint = err.Error()
			w.log.Warn("pods have the claim and do not get it yet, tried again", zap.String("claim", c.Namespace+"/"+c.Name), zap.Error(err))
		}
	}
}
