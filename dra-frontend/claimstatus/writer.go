// SPDX-License-Identifier: Apache-2.0

package claimstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// refusedRetry is the pause after the server has refused a status. Mostly only a change of rights or of the claim helps.
	refusedRetry = time.Hour
	// callTimeout limits one request.
	callTimeout = 10 * time.Second
	// claimsPerSecond, after a burst, leaves the client's rate to Prepare.
	claimsPerSecond, burst = 10, 20
	// settle is the time from the first change of a claim to its write, which has the further changes of that time as well.
	// Most containers start within this time after their claim was prepared, and their memory is protected then.
	settle = 3 * time.Second
)

// Options are what a Writer needs. All are required.
type Options struct {
	Log    *zap.Logger
	Client kubernetes.Interface
	// Driver is the driver's name, also as field manager.
	Driver string
	// SlicePool is the name of this node's pool.
	SlicePool string
	// Written is called after each write.
	Written func(err error)
}

// Writer writes the status of claims, one after the other. Changes of one claim
// within settle share a write.
type Writer struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[string]
	pace  flowcontrol.RateLimiter

	mu   sync.Mutex
	want map[string]wanted
	// complaint is the last error logged: a server that refuses one claim's
	// status mostly refuses all.
	complaint string
}

// wanted has the entries that a claim should have.
type wanted struct {
	namespace, name string
	devices         []device
}

// New returns a writer, which writes while Run runs.
func New(o Options) *Writer {
	return &Writer{
		o: o, want: make(map[string]wanted), pace: flowcontrol.NewTokenBucketRateLimiter(claimsPerSecond, burst),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
	}
}

// Set takes all prepared claims and the findings about them. It does not wait
// for a write.
func (w *Writer) Set(claims []contract.ClaimRecord, report Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := make(map[string]wanted, len(claims))
	for _, c := range claims {
		before, known := w.want[c.UID]
		now := wanted{namespace: c.Namespace, name: c.Name, devices: devices(c, report, before.devices)}
		if !known || !slices.Equal(before.devices, now.devices) {
			w.queue.AddAfter(c.UID, settle)
		}
		want[c.UID] = now
	}
	w.want = want
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.queue.ShutDown)
	defer stop()
	for {
		uid, ended := w.queue.Get()
		if ended {
			return
		}
		if w.pace.Wait(ctx) == nil {
			w.handle(ctx, uid)
		}
		w.queue.Done(uid)
	}
}

func (w *Writer) handle(ctx context.Context, uid string) {
	w.mu.Lock()
	want, known := w.want[uid]
	w.mu.Unlock()
	if !known {
		w.queue.Forget(uid)
		return
	}
	err := w.write(ctx, types.UID(uid), want)
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	if err != nil && ctx.Err() == nil {
		w.complain(want, err)
		if !refused {
			w.queue.AddRateLimited(uid)
			return
		}
		// Without the right to write a status, every claim of every node would be tried again and again.
		w.queue.AddAfter(uid, refusedRetry)
	}
	w.queue.Forget(uid)
}

// write reads the claim first: after a restart most entries need no write.
func (w *Writer) write(ctx context.Context, uid types.UID, want wanted) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	claims := w.o.Client.ResourceV1().ResourceClaims(want.namespace)
	claim, err := claims.Get(ctx, want.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (claim.UID != uid || claim.Status.Allocation == nil) {
		return nil // the claim is unprepared soon
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver == w.o.Driver && r.Pool == w.o.SlicePool
	}) {
		return nil // the claim was allocated to another node since
	}
	operations := operations(w.o.Driver, w.o.SlicePool, want.devices, claim, metav1.Now())
	if len(operations) == 0 {
		return nil
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("status of claim %s/%s: %w", want.namespace, want.name, err)
	}
	claim, err = claims.Patch(ctx, want.name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: w.o.Driver}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.o.Written(err)
	if err != nil {
		return err
	}
	w.check(want, claim)
	return nil
}

// check logs, once, that the server keeps no status of devices.
func (w *Writer) check(want wanted, claim *resourceapi.ResourceClaim) {
	own := func(s resourceapi.AllocatedDeviceStatus) bool { return s.Driver == w.o.Driver }
	if len(want.devices) > 0 && !slices.ContainsFunc(claim.Status.Devices, own) {
		w.logOnce("the API server keeps no status of devices in claims (feature gate DRAResourceClaimDeviceStatus)", want, nil)
		return
	}
	w.mu.Lock()
	w.complaint = ""
	w.mu.Unlock()
}

func (w *Writer) complain(want wanted, err error) {
	w.logOnce("status of a claim not written; the frontend tries again", want, err)
}

// logOnce logs a message unless the last message was the same.
func (w *Writer) logOnce(message string, want wanted, err error) {
	complaint := message
	if err != nil {
		complaint += reasonOf(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.complaint == complaint {
		return
	}
	w.complaint = complaint
	w.o.Log.Warn(message, zap.String("claim", want.namespace+"/"+want.name), zap.Error(err))
}

// reasonOf returns the kind of an error: the text differs for each claim.
func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "unreachable"
}
