// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// holder has the prepared claims; a kubelet.Driver.
type holder interface {
	Prepared() ([]contract.ClaimRecord, error)
	MayRun(contract.ClaimRecord) (bool, error)
	ReleaseOrphan(record contract.ClaimRecord, alsoRemove func() error) error
}

// orphans finds prepared claims whose objects are gone or not allocated to this node any more, and releases them. Kubelet
// never releases these claims if its checkpoint was lost. orphans runs
// beside the daemon's loop because it asks the API server. It does not ask
// about a claim with running pods.
type orphans struct {
	log      *zap.Logger
	metrics  *metrics.Metrics
	client   kubernetes.Interface
	send     func(events.Notice)
	driver   holder
	pool     string // the node's slice pool
	metadata metadata
	interval time.Duration
	// since has the time when a claim was found gone first, by UID.
	since map[string]time.Time
	// asked is when the API server was last asked about claims of which it is unknown whether their pods run.
	asked time.Time
	sent  events.Reminder
	// complaint is the last error that was logged.
	complaint string
}

const (
	// orphanGrace is how long kubelet has to release a claim itself.
	orphanGrace = 5 * time.Minute
	// reasonOrphaned is the reason of the event.
	reasonOrphaned = "ClaimOrphaned"
)

func newOrphans(o Options, driver holder, send func(events.Notice)) *orphans {
	return &orphans{
		log: o.Log, metrics: o.Metrics, client: o.Client, send: send, driver: driver, pool: o.Kubelet.NodeName, metadata: o.metadata(),
		interval: o.Config.RefreshInterval.Duration,
	}
}

func (w *orphans) run(ctx context.Context) {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.check(ctx)
		}
	}
}

func (w *orphans) check(ctx context.Context) {
	claims, err := w.driver.Prepared()
	if err != nil {
		w.complain(ctx, err)
		return
	}
	since, found, complaint := make(map[string]time.Time), make(map[string]string), error(nil)
	// While it is unknown whether pods run, no claim is released. The API server is asked about all claims now and then
	// only, because the actuators of many nodes can be away at once.
	askAll := time.Since(w.asked) >= orphanGrace
	for _, c := range claims {
		runs, unknown := w.driver.MayRun(c)
		if runs && unknown == nil {
			continue
		}
		first, before := w.since[c.UID]
		if unknown != nil && !before {
			if !askAll {
				continue
			}
			w.asked = time.Now()
		}
		gone, err := w.gone(ctx, c)
		if err != nil {
			complaint = err
			gone = before
		}
		if !gone {
			continue
		}
		if !before {
			first = time.Now()
		}
		// I1: a claim is never released while its pods may run.
		if err == nil && unknown == nil && time.Since(first) >= orphanGrace && w.release(c) {
			continue
		}
		since[c.UID], found[c.UID] = first, describeOrphan(c, unknown)
	}
	w.since = since
	w.complain(ctx, complaint)
	w.report(found)
}

func describeOrphan(c contract.ClaimRecord, unknown error) string {
	text := fmt.Sprintf("claim %s/%s, UID %s", c.Namespace, c.Name, c.UID)
	if cpus := c.CPUs(); !cpus.IsEmpty() {
		text += ", CPUs " + cpus.String()
	}
	if unknown != nil {
		text += fmt.Sprintf(" (not released: %.200s)", unknown)
	}
	return text
}

// gone reports whether the claim's object is gone, or is not allocated to this node any more. An object of the same name with
// another UID is another claim.
func (w *orphans) gone(ctx context.Context, c contract.ClaimRecord) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object, err := w.client.ResourceV1().ResourceClaims(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return string(object.UID) != c.UID || !w.allocatedHere(object), nil
}

func (w *orphans) allocatedHere(claim *resourceapi.ResourceClaim) bool {
	return claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results,
		func(r resourceapi.DeviceRequestAllocationResult) bool {
			return r.Driver == kubelet.DriverName && r.Pool == w.pool
		})
}

func (w *orphans) release(c contract.ClaimRecord) bool {
	log := w.log.With(zap.String("claim", c.Namespace+"/"+c.Name), zap.String("uid", c.UID), zap.Stringer("cpus", c.CPUs()))
	err := w.driver.ReleaseOrphan(c, func() error {
		return w.metadata.remove(kubeletplugin.NamespacedObject{
			NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, UID: types.UID(c.UID),
		})
	})
	if err != nil {
		log.Error("orphaned claim not released; the frontend tries again", zap.Error(err))
		return false
	}
	log.Warn("orphaned claim released: its object is gone or not allocated to this node, and none of its pods runs",
		zap.Duration("after", orphanGrace))
	return true
}

func (w *orphans) report(found map[string]string) {
	w.metrics.Orphaned(len(found))
	fresh := w.sent.FreshTexts(found)
	if len(fresh) == 0 {
		return
	}
	w.log.Warn("prepared claims are deleted or not allocated to this node any more", zap.Strings("claims", fresh))
	w.send(events.Notice{Reason: reasonOrphaned, Note: fmt.Sprintf(
		"these prepared claims are deleted, or not allocated to this node any more; the frontend releases a claim %s after it "+
			"found that, unless a pod of the claim runs: %s",
		orphanGrace, events.Few(fresh))})
}

func (w *orphans) complain(ctx context.Context, err error) {
	if err == nil {
		w.complaint = ""
		return
	}
	if ctx.Err() == nil && err.Error() != w.complaint {
		w.complaint = err.Error()
		w.log.Warn("orphaned claims not looked for; the frontend tries again", zap.Error(err))
	}
}
