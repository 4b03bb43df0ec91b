// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/systemd"
)

const (
	a = "kubepods.slice/kubepods-poda.slice"
	b = "kubepods.slice/kubepods-podb.slice"
)

// node is a running Writer with a model of systemd, in the time of a bubble.
type node struct {
	*testing.T
	*model
	writer  *systemd.Writer
	reasons []string
	logged  *observer.ObservedLogs
}

func run(t *testing.T, test func(n *node)) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		n := &node{T: t, model: &model{units: make(map[string]*slice)}, logged: logged}
		n.create("kubepods-poda.slice")
		n.create("kubepods-podb.slice")
		w, stop := start(logs.With(t.Context(), zap.New(core)), n.model, func(reason string) {
			n.locked(func() { n.reasons = append(n.reasons, reason) })
		})
		// The Writer ends, also during a call.
		defer stop()
		n.writer = w
		test(n)
	})
}

func (n *node) set(dir string, content map[string]string) {
	require.NoError(n, n.writer.Set(dir, content))
	synctest.Wait()
}

func (n *node) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waiting returns the files of the calls that systemd has not executed.
func (n *node) waiting() (queue []map[string]string) {
	n.locked(func() {
		for _, m := range n.queue {
			queue = append(queue, m.files)
		}
	})
	return queue
}

// execute executes the calls in the queue, which must be want.
func (n *node) execute(want ...map[string]string) {
	require.Equal(n, want, n.waiting())
	for range want {
		n.step(false)
	}
	synctest.Wait()
}

func low(bytes string) map[string]string { return map[string]string{"memory.low": bytes} }

func TestSetSendsWhatIsNew(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, map[string]string{"memory.low": "1", "hugetlb.2MB.max": "0"})
		n.set(a, low("2"))
		n.set(a, low("3"))
		n.set(a, map[string]string{"memory.min": "4"})
		n.set(b, low("5"))
		require.False(n, n.writer.UpToDate(a))
		require.False(n, n.writer.UpToDate(b))
		n.execute(low("1"))
		n.execute(low("5"))
		n.execute(map[string]string{"memory.low": "3", "memory.min": "4"})
		require.True(n, n.writer.UpToDate(a))
		require.True(n, n.writer.UpToDate(b))
		n.set(a, low("3"))
		n.execute()
		n.writer.Forget(a)
		n.set(a, low("3"))
		require.False(n, n.writer.UpToDate(a))
		n.execute(low("3"))
		n.writer.Forget(b)
		n.writer.Reset()
		synctest.Wait()
		n.execute(low("3"))
		require.ErrorContains(n, n.writer.Set(a, low("x")), "unit kubepods-poda.slice: unit property MemoryLow")
		n.execute()
		require.Empty(n, n.reasons)
		require.Zero(n, n.logged.Len())
	})
}

func TestCallWithoutAnswerIsMadeAgain(t *testing.T) {
	for name, c := range map[string]func(n *node){
		"slow": func(n *node) { n.sleep(5 * time.Second) },
		"lost": func(n *node) { n.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				n.set(a, low("1"))
				n.set(a, low("2"))
				c(n)
				n.sleep(time.Second)
				require.False(n, n.writer.UpToDate(a))
				n.execute(low("1"), low("2"))
				require.True(n, n.writer.UpToDate(a))
				require.Equal(n, "2", n.units["kubepods-poda.slice"].files["memory.low"])
				require.Equal(n, []string{systemd.ReasonSilent}, n.reasons)
				require.Equal(n, 1, n.logged.FilterLevelExact(zapcore.WarnLevel).Len())
				require.Equal(n, 1, n.logged.FilterMessage("systemd takes the properties of units again").Len())
			})
		})
	}
}

// The values that are sent after a call do not depend on the call's result.
func TestChangeDuringACall(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *node)
		then   map[string]string
	}{
		"back to the old value": {change: func(n *node) { n.set(a, low("1")) }, then: low("1")},
		"reset":                 {change: func(n *node) { n.writer.Reset() }, then: low("2")},
		"forget": {change: func(n *node) {
			n.writer.Forget(a)
			require.False(n, n.writer.UpToDate(a))
			n.set(a, low("2"))
		}, then: low("2")},
	} {
		for end, report := range map[string]func(n *node){
			"executed": func(n *node) { n.execute(low("2")) },
			"gone": func(n *node) {
				n.locked(func() { delete(n.units, "kubepods-poda.slice") })
				n.execute(low("2"))
				n.locked(func() { n.create("kubepods-poda.slice") })
			},
			"late": func(n *node) {
				n.sleep(6 * time.Second)
				n.step(false)
			},
		} {
			t.Run(name+" "+end, func(t *testing.T) {
				run(t, func(n *node) {
					n.set(a, low("1"))
					n.execute(low("1"))
					n.set(a, low("2"))
					c.change(n)
					report(n)
					n.execute(c.then)
					require.True(n, n.writer.UpToDate(a))
					n.execute()
				})
			})
		}
	}
}

func TestUnitThatIsGone(t *testing.T) {
	run(t, func(n *node) {
		n.locked(func() { delete(n.units, "kubepods-poda.slice") })
		n.set(a, low("1"))
		n.set(a, low("2"))
		n.execute(low("1"))
		n.execute(low("2")) // the unit could have been made after the first call
		require.True(n, n.writer.UpToDate(a))
		n.writer.Reset()
		synctest.Wait()
		n.execute()
		require.Empty(n, n.reasons)
	})
}

func TestRefusalIsTriedAgain(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, low("1"))
		wait := 100 * time.Millisecond
		for range 12 {
			require.Len(n, n.waiting(), 1)
			n.step(true)
			n.sleep(wait - time.Nanosecond)
			require.Empty(n, n.waiting(), "not before %s", wait)
			n.sleep(time.Nanosecond)
			wait = min(2*wait, 30*time.Second)
		}
		n.execute(low("1"))
		require.Len(n, n.reasons, 12)
		require.Equal(n, systemd.ReasonRefused, n.reasons[0])
		require.Equal(n, 2, n.logged.Len(), "the first of them, and the end")
	})
}

func TestNoBus(t *testing.T) {
	run(t, func(n *node) {
		n.locked(func() { n.off = true })
		n.set("kubepods/podu", low("x"))
		require.True(n, n.writer.UpToDate("kubepods/podu"))
		n.writer.Forget("kubepods/podu")
		n.sleep(time.Hour)
		require.Empty(n, n.reasons, "nothing is pending: nobody asks for a bus")
		n.set(a, low("1"))
		n.sleep(time.Hour)
		require.InDelta(n, 127, len(n.reasons), 2)
		require.Equal(n, systemd.ReasonConnect, n.reasons[0])
		require.Equal(n, 1, n.logged.Len())
		n.locked(func() { n.off = false })
		n.sleep(30 * time.Second)
		n.execute(low("1"))
	})
}

func TestRunEndsDuringACall(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, low("1"))
		require.Len(n, n.waiting(), 1)
	})
}
