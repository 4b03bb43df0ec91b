// SPDX-License-Identifier: Apache-2.0

// Package events reports faults of the node as events about the node, because
// people seldom read the logs of one daemon among many. The daemon sends its
// findings; it neither waits for an event nor fails with it.
package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// waiting bounds the events that wait for a server without an answer.
	waiting = 16
	// attempts, with pauses that double from firstRetry, take some minutes.
	attempts   = 9
	firstRetry = time.Second
	// callTimeout limits one request.
	callTimeout = 10 * time.Second
	// burst events, and one event more each pause, are the most that a node
	// writes.
	burst = 10
	pause = 30 * time.Second
)

// The API's limits.
const (
	maxName     = 253
	maxNote     = 1024
	maxInstance = 128
)

// Notice is a fault of the node that people should know.
type Notice struct {
	// Reason is a word for machines, Note a sentence for people.
	Reason, Note string
}

// Options are what a Writer needs. All are required.
type Options struct {
	Log    *zap.Logger
	Client kubernetes.Interface
	// Driver is the driver's name, Node the node's.
	Driver, Node string
}

// Writer writes events, one after the other.
type Writer struct {
	o     Options
	queue chan *eventsv1.Event
	pace  flowcontrol.RateLimiter
	// complaint is the last error logged.
	complaint string
}

// New returns a writer, which writes while Run runs.
func New(o Options) *Writer {
	return &Writer{o: o, queue: make(chan *eventsv1.Event, waiting),
		pace: flowcontrol.NewTokenBucketRateLimiter(float32(time.Second)/float32(pause), burst)}
}

// Send queues an event about the node and returns at once. The event is dropped
// if too many wait, or if the API server refuses it or stays away.
func (w *Writer) Send(n Notice) {
	select {
	case w.queue <- w.event(n, time.Now()):
	default:
		w.o.Log.Debug("event not written, too many wait", zap.String("reason", n.Reason), zap.String("note", n.Note))
	}
}

// event returns the event with a unique name, so that a retry after a lost
// answer makes no second event.
func (w *Writer) event(n Notice, now time.Time) *eventsv1.Event {
	suffix := fmt.Sprintf(".%x", now.UnixNano())
	return &eventsv1.Event{
		// Events about objects without a namespace live in the default namespace.
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault,
			Name:      strings.TrimRight(clip(w.o.Node, maxName-len(suffix)), "-.") + suffix,
		},
		EventTime: metav1.NewMicroTime(now), Type: corev1.EventTypeWarning,
		ReportingController: w.o.Driver, ReportingInstance: clip(w.o.Driver+"-"+w.o.Node, maxInstance), Action: "Observing",
		Reason: n.Reason, Note: clip(n.Note, maxNote),
		// The UID is the node's name, as in kubelet's events: `kubectl describe
		// node` looks for that.
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: w.o.Node, UID: types.UID(w.o.Node)},
	}
}

func clip(s string, length int) string {
	if len(s) > length {
		return strings.ToValidUTF8(s[:length], "")
	}
	return s
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.queue:
			if w.pace.Wait(ctx) == nil {
				w.write(ctx, e)
			}
		}
	}
}

func (w *Writer) write(ctx context.Context, e *eventsv1.Event) {
	delay := firstRetry
	for left := attempts - 1; ; left-- {
		err := w.create(ctx, e)
		if ctx.Err() != nil {
			return
		}
		w.complain(err)
		if err == nil || left == 0 || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
			apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay *= 2
	}
}

func (w *Writer) create(ctx context.Context, e *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := w.o.Client.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// complain logs an error unless the last attempt had an error of the same kind.
func (w *Writer) complain(err error) {
	complaint := ""
	if err != nil {
		complaint = string(apierrors.ReasonForError(err)) + "!"
	}
	if complaint != "" && complaint != w.complaint {
		w.o.Log.Warn("event about the node not written", zap.Error(err))
	}
	w.complaint = complaint
}
