// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
)

// server counts its requests, and answers with err unless err is nil.
type server struct {
	*fake.Clientset
	asked int
	err   error
	// late delays answers until the caller has gone.
	late bool
}

func newServer() *server {
	s := &server{Clientset: fake.NewClientset()}
	s.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		s.asked++
		if s.late {
			time.Sleep(time.Hour)
		}
		return s.err != nil, nil, s.err
	})
	return s
}

func (s *server) events(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := s.Tracker().List(eventsv1.SchemeGroupVersion.WithResource("events"),
		eventsv1.SchemeGroupVersion.WithKind("Event"), metav1.NamespaceDefault)
	require.NoError(t, err)
	return list.(*eventsv1.EventList).Items
}

func writer(t *testing.T, s *server, node string) (*events.Writer, *observer.ObservedLogs) {
	t.Helper()
	core, logged := observer.New(zap.WarnLevel)
	w := events.New(events.Options{Log: zap.New(core), Client: s, Driver: "dra.cpumem", Node: node})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, logged
}

func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w, logged := writer(t, s, "worker")
		w.Send(events.Notice{Reason: "MemoryValuesOverwritten", Note: "a note"})
		synctest.Wait()
		events := s.events(t)
		require.Len(t, events, 1)
		e := events[0]
		require.Equal(t, []string{"default", "Warning", "MemoryValuesOverwritten", "a note", "dra.cpumem", "dra.cpumem-worker"},
			[]string{e.Namespace, e.Type, e.Reason, e.Note, e.ReportingController, e.ReportingInstance})
		require.Equal(t, []string{"v1", "Node", "worker", "worker"},
			[]string{e.Regarding.APIVersion, e.Regarding.Kind, e.Regarding.Name, string(e.Regarding.UID)})
		require.NotEmpty(t, e.Action)
		require.False(t, e.EventTime.IsZero())
		require.Zero(t, logged.Len())
	})
}

// Names and notes stay within the API's limits.
func TestLengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w, _ := writer(t, s, strings.Repeat("a.", 126)+"a")
		w.Send(events.Notice{Reason: "R", Note: strings.Repeat("ö", 600)})
		synctest.Wait()
		e := s.events(t)[0]
		require.LessOrEqual(t, len(e.Name), 253)
		require.NotContains(t, e.Name, "..")
		require.LessOrEqual(t, len(e.ReportingInstance), 128)
		require.LessOrEqual(t, len(e.Note), 1024)
		require.Equal(t, strings.ToValidUTF8(e.Note, "?"), e.Note)
	})
}

// A refused event is not sent again. After any other error the event is sent
// again for some minutes. Both errors are logged once.
func TestErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		asked int
	}{
		"forbidden":      {apierrors.NewForbidden(eventsv1.Resource("events"), "e", errors.New("no")), 1},
		"unreachable":    {errors.New("connection refused"), 9},
		"already exists": {apierrors.NewAlreadyExists(eventsv1.Resource("events"), "e"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.err = tc.err
				w, logged := writer(t, s, "worker")
				w.Send(events.Notice{Reason: "R", Note: "n"})
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Equal(t, tc.asked, s.asked)
				if apierrors.IsAlreadyExists(tc.err) {
					require.Zero(t, logged.Len(), "it was written, and the answer lost")
				} else {
					require.Equal(t, 1, logged.Len())
				}
				s.err = nil
				w.Send(events.Notice{Reason: "R", Note: "n"})
				synctest.Wait()
				require.Len(t, s.events(t), 1)
			})
		})
	}
}

// After the last attempt the next event has its turn at once.
func TestLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.err = errors.New("connection refused")
		w, _ := writer(t, s, "worker")
		w.Send(events.Notice{Reason: "R", Note: "first"})
		w.Send(events.Notice{Reason: "R", Note: "second"})
		time.Sleep(256 * time.Second) // the pauses between nine attempts take 255 s
		synctest.Wait()
		require.Equal(t, 11, s.asked, "nine and two")
	})
}

// A server without answers blocks no sender, and a flood of notices is limited.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.late = true
		w, _ := writer(t, s, "worker")
		before := time.Now()
		for i := range 1000 {
			w.Send(events.Notice{Reason: "R", Note: fmt.Sprint(i)})
		}
		require.Equal(t, before, time.Now())
		time.Sleep(2 * time.Hour)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		w, _ := writer(t, s, "worker")
		for i := range 3600 {
			w.Send(events.Notice{Reason: "R", Note: fmt.Sprint(i)})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		require.InDelta(t, 10+120, s.asked, 2, "of an hour")
	})
}
