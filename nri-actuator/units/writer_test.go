// SPDX-License-Identifier: Apache-2.0

package units_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/units"
)

const (
	pod = "kubepods.slice/kubepods-podu.slice"
	a   = pod + "/cri-containerd-a.scope"
	b   = pod + "/cri-containerd-b.scope"
)

// node is a running Writer and the systemd it talks to, in a time of its own.
type node struct {
	*testing.T
	systemd *systemd
	writer  *units.Writer
	reasons []string
	logged  *observer.ObservedLogs
}

func run(t *testing.T, test func(n *node)) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zapcore.InfoLevel)
		n := &node{T: t, systemd: new(systemd), logged: logged}
		for _, unit := range []string{"kubepods-podu.slice", "cri-containerd-a.scope", "cri-containerd-b.scope"} {
			n.systemd.create(unit, map[string]string{"cpuset.cpus": "0-9", "memory.low": "0"})
		}
		n.writer = units.New(n.systemd.connect, func(reason string) {
			n.systemd.locked(func() { n.reasons = append(n.reasons, reason) })
		})
		ctx, cancel := context.WithCancel(logs.With(t.Context(), zap.New(core)))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.writer.Run(ctx)
		}()
		test(n)
		// Run ends whatever is under way.
		cancel()
		<-ended
		require.NoError(t, n.systemd.wrong)
	})
}

// queue returns what systemd is yet to execute.
func (n *node) queue() (sent []map[string]string) {
	synctest.Wait()
	n.systemd.locked(func() {
		for _, m := range n.systemd.queue {
			sent = append(sent, m.files)
		}
	})
	return sent
}

func (n *node) execute() {
	synctest.Wait()
	n.systemd.step(false)
	synctest.Wait()
}

func (n *node) write(dir string, content map[string]string) error {
	ctx, cancel := context.WithTimeout(n.Context(), time.Second)
	defer cancel()
	unit, _ := units.Unit(dir)
	_, err := n.writer.Write(ctx, dir, content, func() ([]string, error) {
		n.systemd.begin(unit)
		return n.systemd.end(unit, content, nil), nil
	})
	return err
}

func (n *node) set(dir string, content map[string]string) {
	unit, _ := units.Unit(dir)
	if n.systemd.units[unit] != nil {
		n.systemd.allow(unit, content)
	}
	require.NoError(n, n.writer.Set(dir, content))
}

// start writes while the test goes on.
func (n *node) start(dir string, content map[string]string) (done chan error) {
	done = make(chan error, 1)
	go func() { done <- n.write(dir, content) }()
	synctest.Wait()
	return done
}

func cpus(list string) map[string]string { return map[string]string{"cpuset.cpus": list} }

func TestSetSendsWhatIsNew(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, map[string]string{"cpuset.cpus": "1", "hugetlb.2MB.max": "0"})
		require.Equal(n, []map[string]string{cpus("1")}, n.queue())
		n.set(a, cpus("2"))
		n.set(a, cpus("3"))
		n.set(a, map[string]string{"memory.low": "4096"})
		require.Len(n, n.queue(), 1, "one call at a time")
		n.execute()
		require.Equal(n, []map[string]string{{"cpuset.cpus": "3", "memory.low": "4096"}}, n.queue(), "the newest of each file")
		n.execute()
		n.set(a, cpus("3"))
		require.Empty(n, n.queue(), "known already")
		n.writer.Reset()
		require.Equal(n, []map[string]string{{"cpuset.cpus": "3", "memory.low": "4096"}}, n.queue())
		n.execute()
		require.ErrorContains(n, n.writer.Set(a, cpus("x")), "unit cri-containerd-a.scope: unit property AllowedCPUs")
		require.NoError(n, n.writer.Settle(n.Context(), a))
		require.Empty(n, n.reasons)
		require.Zero(n, n.logged.Len())
	})
}

func TestWriteWaitsForItsUnitOnly(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, cpus("1"))
		require.Len(n, n.queue(), 1)
		require.NoError(n, n.write(b, cpus("5")), "another unit")
		err := n.write(a, cpus("2"))
		require.ErrorContains(n, err, "unit cri-containerd-a.scope: systemd has not answered for 1s, it is busy: nothing was written")
		require.ErrorIs(n, err, context.DeadlineExceeded)
		require.Equal(n, "0-9", n.systemd.units["cri-containerd-a.scope"].files["cpuset.cpus"])

		done := n.start(a, cpus("2"))
		n.execute()
		require.NoError(n, <-done)
		require.Equal(n, "2", n.systemd.units["cri-containerd-a.scope"].files["cpuset.cpus"])
		require.Equal(n, []map[string]string{cpus("5")}, n.queue(), "in the order of what is due")
		n.execute()
		require.Equal(n, []map[string]string{cpus("2")}, n.queue())
	})
}

func TestCallWithoutAnswerMayStillBeExecuted(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, cpus("1"))
		time.Sleep(6 * time.Second)
		require.Equal(n, []map[string]string{cpus("1"), {}}, n.queue(), "the call, given up, and one that sets nothing and shows when it is over")
		require.ErrorContains(n, n.write(a, cpus("2")), "systemd has not answered for 7s")
		require.ErrorContains(n, n.writer.Settle(expired(n), a), "no answer within 5s")
		done := n.start(a, cpus("2"))
		n.execute()
		synctest.Wait()
		require.Empty(n, done, "executed, but nobody knows")
		n.execute()
		require.NoError(n, <-done)
		require.Equal(n, []map[string]string{cpus("2")}, n.queue(), "not the old one again")
		n.execute()
		require.NoError(n, n.writer.Settle(n.Context(), a))
		require.Equal(n, "2", n.systemd.units["cri-containerd-a.scope"].properties["cpuset.cpus"])
		require.Equal(n, []string{units.ReasonSilent}, n.reasons)
		require.Equal(n, 1, n.logged.FilterLevelExact(zapcore.WarnLevel).Len())
		require.Equal(n, 1, n.logged.FilterMessage("systemd takes the properties of units again").Len())
	})
}

func TestLostConnectionLeavesADoubt(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, cpus("1"))
		require.Len(n, n.queue(), 1)
		n.systemd.conn.Close()
		require.ErrorContains(n, n.write(a, cpus("2")), "systemd has not answered")
		require.Equal(n, []map[string]string{cpus("1"), {}}, n.queue(), "on a new connection")
		done := n.start(a, cpus("2"))
		n.execute()
		n.execute()
		require.NoError(n, <-done)
		n.execute()
		require.Equal(n, []string{units.ReasonSilent}, n.reasons)
	})
}

func TestUnitThatIsGone(t *testing.T) {
	run(t, func(n *node) {
		n.systemd.locked(func() { delete(n.systemd.units, "cri-containerd-a.scope") })
		n.set(a, cpus("1"))
		n.execute()
		n.writer.Reset()
		require.Empty(n, n.queue())
		require.Empty(n, n.reasons)

		n.set(pod, map[string]string{"memory.low": "1"})
		n.set(b, cpus("1"))
		n.writer.Forget(b)
		n.execute()
		require.Empty(n, n.queue(), "what was forgotten is not sent")
	})
}

func TestRefusalIsTriedAgain(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, cpus("1"))
		wait := 100 * time.Millisecond
		for range 12 {
			require.Len(n, n.queue(), 1)
			n.systemd.step(true)
			require.NoError(n, n.write(a, cpus("1")), "nobody is kept from writing")
			time.Sleep(wait - time.Nanosecond)
			require.Empty(n, n.queue(), "not before %s", wait)
			time.Sleep(time.Nanosecond)
			wait = min(2*wait, 30*time.Second)
		}
		n.execute()
		require.Len(n, n.reasons, 12)
		require.Equal(n, units.ReasonRefused, n.reasons[0])
		require.Equal(n, 1, n.logged.FilterLevelExact(zapcore.WarnLevel).Len(), "one line for an error that stays the same")
		require.Equal(n, 2, n.logged.Len())
	})
}

func TestWhatSystemdHasIsKnownForSure(t *testing.T) {
	for name, c := range map[string]func(n *node){
		"others changed the file": func(n *node) {
			n.systemd.foreign("cri-containerd-a.scope", "cpuset.cpus", "7")
			require.NoError(n, n.write(a, cpus("1")))
		},
		"the write did not end well": func(n *node) {
			_, err := n.writer.Write(n.Context(), a, cpus("1"), func() ([]string, error) { return nil, errors.New("refused") })
			require.Error(n, err)
		},
		"a lost call brought another value": func(n *node) {
			n.set(a, cpus("2"))
			require.Len(n, n.queue(), 1)
			n.systemd.conn.Close()
			n.set(a, cpus("1"))
			time.Sleep(time.Second)
			n.execute()
			n.execute()
		},
		"reset during a call": func(n *node) {
			n.set(a, cpus("2"))
			require.Len(n, n.queue(), 1)
			n.set(a, cpus("1"))
			n.execute()
			require.Equal(n, []map[string]string{cpus("1")}, n.queue())
			n.writer.Reset()
			n.execute()
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				n.set(a, cpus("1"))
				n.execute()
				require.NoError(n, n.write(a, cpus("1")))
				require.Empty(n, n.queue())
				c(n)
				require.Equal(n, []map[string]string{cpus("1")}, n.queue())
			})
		})
	}
}

func TestNoBus(t *testing.T) {
	run(t, func(n *node) {
		n.systemd.locked(func() { n.systemd.off = true })
		ran := false
		_, err := n.writer.Write(n.Context(), "kubepods/podu/id", cpus("1"), func() ([]string, error) {
			ran = true
			return nil, nil
		})
		require.NoError(n, err)
		require.True(n, ran)
		require.NoError(n, n.writer.Set("kubepods/podu", cpus("1")))
		require.NoError(n, n.writer.Settle(n.Context(), "kubepods/podu"))
		n.writer.Forget("kubepods/podu")
		time.Sleep(time.Hour)
		require.Empty(n, n.reasons, "nothing is pending: nobody asks for a bus")

		require.NoError(n, n.write(a, cpus("1")), "writing goes on without a bus")
		time.Sleep(time.Hour)
		require.NoError(n, n.write(a, cpus("2")))
		require.Greater(n, len(n.reasons), 100)
		require.Less(n, len(n.reasons), 200)
		require.Equal(n, units.ReasonConnect, n.reasons[0])
		require.Equal(n, 1, n.logged.Len())
		n.systemd.locked(func() { n.systemd.off = false })
		time.Sleep(31 * time.Second)
		require.Equal(n, []map[string]string{cpus("2")}, n.queue())
	})
}

func TestErrorOfDirectWrite(t *testing.T) {
	run(t, func(n *node) {
		refused := errors.New("refused")
		_, err := n.writer.Write(n.Context(), a, cpus("1"), func() ([]string, error) { return nil, refused })
		require.ErrorIs(n, err, refused)
		n.systemd.locked(func() { n.systemd.units["cri-containerd-a.scope"].allowed["cpuset.cpus"]["1"] = true })
		require.Equal(n, []map[string]string{cpus("1")}, n.queue(), "still what the unit shall have")
		n.execute()

		_, err = n.writer.Write(n.Context(), a, cpus("x"), func() ([]string, error) { panic("written") })
		require.ErrorContains(n, err, "AllowedCPUs")
		_, err = n.writer.Write(n.Context(), a, map[string]string{"hugetlb.2MB.max": "0"}, func() ([]string, error) { return []string{"hugetlb.2MB.max"}, nil })
		require.NoError(n, err)
		require.Empty(n, n.queue())
	})
}

func TestRunEndsDuringACall(t *testing.T) {
	run(t, func(n *node) {
		n.set(a, cpus("1"))
		require.Len(n, n.queue(), 1)
	})
}

func expired(n *node) context.Context {
	ctx, cancel := context.WithCancel(n.Context())
	cancel()
	return ctx
}
