// SPDX-License-Identifier: Apache-2.0

package claimstatus_test

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
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
)

const (
	driver = "dra.cpumem"
	uid    = "00000000-0000-4000-8000-000000000001"
	share  = "00000000-0000-4000-8000-0000000000aa"
)

func record() contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "ns", Name: "c", UID: uid, Results: []contract.ResultRecord{{
		Request: "r", Pool: "worker", Device: "numa-1", ShareID: share, Parameters: map[string]string{"cpu.placement": "packed"},
		Decision: contract.Decision{V: contract.Version, CPUs: contracttest.CPUs("2,6"),
			Partition: contract.PartitionRoot, Mems: contracttest.NUMANodes("1"),
			Memory: &contract.Memory{Min: 1 << 30, High: contract.Max, Max: 1 << 30}, Hugepages: map[string]contract.Limit{"2Mi": 4 << 20},
			Quota: contract.QuotaNone, MemoryPolicy: &contract.MemoryPolicy{Mode: "MPOL_BIND", Nodes: contracttest.NUMANodes("1")}},
	}}}
}

// writer starts a writer; logged has its warnings.
func writer(t *testing.T, s *server) (w *claimstatus.Writer, logged *observer.ObservedLogs) {
	t.Helper()
	core, logged := observer.New(zap.WarnLevel)
	w = claimstatus.New(claimstatus.Options{Log: zap.New(core), Client: s, Driver: driver, SlicePool: "worker", Written: func(error) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, logged
}

// settled is longer than a change waits for further changes of its claim.
const settled = 5 * time.Second

// pass lets time pass and the writer do its work.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, logged := writer(t, s)
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(settled)
		require.Len(t, s.written(), 1)
		require.True(t, strings.HasPrefix(s.written()[0], "status application/json-patch+json"))
		require.Contains(t, s.written()[0], uid, "bound to this claim")
		got := s.own(t)
		require.Equal(t, []string{driver, "worker", "numa-1", share}, []string{got.Driver, got.Pool, got.Device, *got.ShareID})
		require.JSONEq(t, `{"request":"r","cpus":"2,6","partition":"root","mems":"1",`+
			`"memory":{"min":1073741824,"low":0,"high":"max","max":1073741824},
			"hugepages":{"2Mi":4194304},
			"memoryPolicy":{"mode":"MPOL_BIND","nodes":"1"},"quota":"none","parameters":{"cpu.placement":"packed"}}`, string(got.Data.Raw))
		require.Len(t, got.Conditions, 1)
		ready := got.Conditions[0]
		require.Equal(t, []string{"Ready", "True", "Prepared"}, []string{ready.Type, string(ready.Status), ready.Reason})

		// A08: unchanged claims are neither read nor written again.
		reads := s.asked()
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(settled)
		require.Equal(t, reads, s.asked())

		pass(time.Hour)
		lacking := map[contract.Key]health.Finding{{ClaimUID: uid}: {Reason: health.ReasonCPUs, Message: "CPUs 6 are offline"}}
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Health: lacking})
		pass(settled)
		require.Len(t, s.written(), 2)
		lost := s.own(t).Conditions[0]
		require.Equal(t, []string{"False", "CPUsOffline", "CPUs 6 are offline"}, []string{string(lost.Status), lost.Reason, lost.Message})
		require.Equal(t, time.Hour+2*settled, lost.LastTransitionTime.Sub(ready.LastTransitionTime.Time))

		pass(time.Hour)
		lacking[contract.Key{ClaimUID: uid}] = health.Finding{Reason: health.ReasonCPUs, Message: "CPUs 2,6 are offline"}
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Health: lacking})
		pass(settled)
		require.Equal(t, lost.LastTransitionTime.UTC(), s.own(t).Conditions[0].LastTransitionTime.UTC(), "no transition, other words")

		w.Set(nil, claimstatus.Report{})
		pass(settled)
		require.Len(t, s.written(), 3, "a released claim is not written to")
		require.Zero(t, logged.Len())
	})
}

// A08: a new instance reads the claim and needs no write.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		first, _ := writer(t, s)
		first.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(settled)
		second, _ := writer(t, s)
		second.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(settled)
		require.Len(t, s.written(), 1)
		require.Equal(t, 2, s.asked())
	})
}

// Memory protection has its own condition. The numbers of its message follow
// other claims and alone need no write (A08).
func TestProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, logged := writer(t, s)
		set := func(w *claimstatus.Writer, f health.Protection) []metav1.Condition {
			w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Protection: map[contract.Key]health.Protection{{ClaimUID: uid}: f}})
			pass(settled)
			return s.own(t).Conditions
		}
		short := health.Protection{Status: "False", Reason: "AncestorUnprotected", Where: "kubepods/memory.min", Message: "needs 1"}
		first := set(w, short)
		require.Len(t, first, 2)
		require.Equal(t, []string{"Ready", "MemoryProtectionEffective"}, []string{first[0].Type, first[1].Type})
		require.Equal(t, []string{"False", "AncestorUnprotected", "needs 1"},
			[]string{string(first[1].Status), first[1].Reason, first[1].Message})

		pass(time.Hour)
		more := short
		more.Message = "needs 2"
		require.Equal(t, first, set(w, more))
		require.Len(t, s.written(), 1)

		more.Where = "kubepods/burstable/memory.min"
		elsewhere := set(w, more)[1]
		require.Equal(t, "needs 2", elsewhere.Message)
		require.Equal(t, first[1].LastTransitionTime.UTC(), elsewhere.LastTransitionTime.UTC())
		require.Len(t, s.written(), 2)

		well := health.Protection{Status: "True", Reason: "Protected", Message: "well"}
		now := set(w, well)
		require.Equal(t, time.Hour+3*settled, now[1].LastTransitionTime.Sub(first[1].LastTransitionTime.Time))
		require.Equal(t, first[0].LastTransitionTime.UTC(), now[0].LastTransitionTime.UTC(), "the other condition stays")
		require.Len(t, s.written(), 3)

		second, _ := writer(t, s)
		set(second, well)
		require.Len(t, s.written(), 3, "after a restart")

		second.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(settled)
		require.Len(t, s.own(t).Conditions, 1, "without protection there is nothing to say")
		require.Zero(t, logged.Len())
	})
}

// A08: a claim whose container starts soon costs one read and one write.
func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		for _, f := range []health.Protection{
			{Status: "Unknown", Reason: health.ReasonNotStarted, Message: "not applied"},
			{Status: "Unknown", Reason: health.ReasonNotStarted, Message: "no container"},
			{Status: "True", Reason: health.ReasonProtected},
		} {
			w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Protection: map[contract.Key]health.Protection{{ClaimUID: uid}: f}})
			pass(time.Second)
		}
		pass(time.Hour)
		require.Len(t, s.written(), 1)
		require.Equal(t, 1, s.asked())
		require.Equal(t, health.ReasonProtected, s.own(t).Conditions[1].Reason)
	})
}

// A finding that changes all the time does not keep the status from being written.
func TestSettlingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		for i := range 5 {
			where := fmt.Sprint("cgroup-", i)
			f := health.Protection{Status: "False", Reason: health.ReasonUnprotected, Message: where, Where: where}
			w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Protection: map[contract.Key]health.Protection{{ClaimUID: uid}: f}})
			pass(900 * time.Millisecond) // no change is at the time of the write
		}
		require.Len(t, s.written(), 1, "three seconds after the first change")
		pass(settled)
		require.Len(t, s.written(), 2)
	})
}

// A change does not wait for the retry of the write before.
func TestChangeDuringBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		s.refuse(errors.New("connection refused"))
		w, _ := writer(t, s)
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(time.Hour) // retries are five minutes apart
		tries := len(s.written())
		s.refuse(nil)
		changed := record()
		changed.Results[0].Decision.CPUs = contracttest.CPUs("3,7")
		w.Set([]contract.ClaimRecord{changed}, claimstatus.Report{})
		pass(settled)
		require.Len(t, s.written(), tries+1)
	})
}

// The writer does not write to a deallocated claim or to another claim of the
// same name.
func TestNotThisClaim(t *testing.T) {
	for name, change := range map[string]func(*resourceapi.ResourceClaim){
		"another UID":   func(c *resourceapi.ResourceClaim) { c.UID = "other" },
		"deallocated":   func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil },
		"another claim": func(c *resourceapi.ResourceClaim) { c.Name = "d" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(change)
				w, logged := writer(t, s)
				w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
				pass(time.Hour)
				require.Empty(t, s.written())
				require.Equal(t, 1, s.asked())
				require.Zero(t, logged.Len())
			})
		})
	}
}

// A failed write is tried again, at growing intervals, and each hour if the server has refused it. Its error is logged once.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		tries   int // within two hours
		success time.Duration
	}{
		"forbidden":   {apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", errors.New("no")), 2, time.Hour},
		"invalid":     {apierrors.NewInvalid(resourceapi.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), "c", nil), 2, time.Hour},
		"conflict":    {apierrors.NewConflict(resourceapi.Resource("resourceclaims"), "c", errors.New("changed")), 32, 5 * time.Minute},
		"unreachable": {errors.New("connection refused"), 32, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(nil)
				s.refuse(c.err)
				w, logged := writer(t, s)
				w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
				pass(2 * time.Hour)
				require.Len(t, s.written(), c.tries)
				require.Equal(t, 1, logged.FilterMessageSnippet("tries again").Len())
				s.refuse(nil)
				pass(c.success)
				require.Len(t, s.written(), c.tries+1)
				require.Equal(t, "numa-1", s.own(t).Device)
			})
		})
	}
}

// A server without the feature gate drops the entries: a log line says so once,
// and the write is not tried again.
func TestDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		s.drop = true
		w, logged := writer(t, s)
		w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{})
		pass(time.Hour)
		changed := record()
		changed.Results[0].Decision.CPUs = contracttest.CPUs("3,7")
		w.Set([]contract.ClaimRecord{changed}, claimstatus.Report{})
		pass(time.Hour)
		require.Len(t, s.written(), 2)
		require.Equal(t, 1, logged.FilterMessageSnippet("DRAResourceClaimDeviceStatus").Len())
	})
}

// Many claims at once leave the client's rate to Prepare.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		var claims []contract.ClaimRecord
		for i := range 100 {
			c := record()
			c.UID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i+10)
			claims = append(claims, c)
		}
		w.Set(claims, claimstatus.Report{})
		pass(3 * time.Second) // all settle
		require.Equal(t, 20, s.asked())
		pass(4 * time.Second)
		require.InDelta(t, 60, s.asked(), 1)
		pass(4 * time.Second)
		require.Equal(t, 100, s.asked())
	})
}

// The API takes 10 KiB of data. A longer decision is left out, the condition not.
func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		long, even := record(), []int{}
		for id := range 3000 {
			even = append(even, 2*id)
		}
		long.Results[0].Decision.CPUs = contract.CPUs(even...)
		w.Set([]contract.ClaimRecord{long}, claimstatus.Report{})
		pass(settled)
		require.Nil(t, s.own(t).Data)
		require.Equal(t, metav1.ConditionTrue, s.own(t).Conditions[0].Status)
	})
}

// Conditions about quiet CPUs come and go with the report.
func TestQuietConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(nil)
		w, _ := writer(t, s)
		key := contract.Key{ClaimUID: uid}
		conditions := func(q health.Quiet) []string {
			w.Set([]contract.ClaimRecord{record()}, claimstatus.Report{Quiet: map[contract.Key]health.Quiet{key: q}})
			pass(time.Hour)
			var all []string
			for _, c := range s.own(t).Conditions {
				all = append(all, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason))
			}
			return all
		}
		throttled := health.Condition{Status: metav1.ConditionFalse, Reason: health.ReasonCPULimit, Message: "limit"}
		fixed := health.Condition{Status: metav1.ConditionFalse, Reason: health.ReasonFixed, Message: "24 disk"}
		require.Equal(t, []string{"Ready True Prepared", "InterruptsQuiet False InterruptsFixed", "Unthrottled False CPULimit"},
			conditions(health.Quiet{Interrupts: fixed, Quota: throttled}))
		require.Equal(t, []string{"Ready True Prepared", "Unthrottled False CPULimit"}, conditions(health.Quiet{Quota: throttled}))
		require.Equal(t, []string{"Ready True Prepared"}, conditions(health.Quiet{}))
		writes := len(s.written())
		conditions(health.Quiet{})
		require.Len(t, s.written(), writes, "nothing is written again")

		// What was measured is written when a number of digits changes.
		measured := func(message, magnitudes string) string {
			conditions(health.Quiet{
				Measured:   health.Condition{Status: metav1.ConditionTrue, Reason: health.ReasonQuiet, Message: message},
				Magnitudes: magnitudes,
			})
			c := s.own(t).Conditions[1]
			return fmt.Sprint(c.Type, " ", c.Status, " ", c.Message)
		}
		require.Equal(t, "Quiet True 1 interrupt", measured("1 interrupt", "1"))
		require.Equal(t, "Quiet True 1 interrupt", measured("9 interrupts", "1"))
		require.Equal(t, "Quiet True 10 interrupts", measured("10 interrupts", "2"))
	})
}
