// SPDX-License-Identifier: Apache-2.0

package instances_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/instances"
)

// Pods by age, oldest first.
const (
	first  = "00000000-0000-4000-8000-000000000003"
	second = "00000000-0000-4000-8000-000000000002"
	third  = "00000000-0000-4000-8000-000000000001"
)

func open(t *testing.T, dir, pod, release string) *instances.Instance {
	t.Helper()
	i, err := instances.Open(dir, instances.Identity{PodUID: pod, Release: release})
	require.NoError(t, err)
	return i
}

func asked(t *testing.T, i *instances.Instance) bool {
	t.Helper()
	is, err := i.Asked()
	require.NoError(t, err)
	return is
}

func held(t *testing.T, i *instances.Instance) *instances.HeldError {
	t.Helper()
	err := new(instances.HeldError)
	require.ErrorAs(t, i.Activate(), &err)
	return err
}

// A63: the newer instance asks and the older one hands over. The older one
// becomes active again when the newer one has ended.
func TestHandOver(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, first, "ns/r"), open(t, dir, second, "ns/r")
	require.NoError(t, a.Activate())
	require.False(t, asked(t, a))
	err := held(t, b)
	require.True(t, err.Successor)
	require.ErrorContains(t, err, "an older instance of the frontend serves this node (pod UID \""+first+"\" of release \"ns/r\")")
	require.False(t, asked(t, a), "it waits for kubelet")
	require.NoError(t, b.Ask())
	require.NoError(t, b.Ask())
	require.True(t, asked(t, a))
	require.False(t, asked(t, b), "not by itself")

	require.NoError(t, a.StepDown())
	require.Error(t, a.Activate(), "the one that asks goes first")
	require.NoError(t, b.Activate())
	require.False(t, asked(t, a), "nobody asks any more")
	require.False(t, held(t, a).Successor, "the older one does not ask for its place back")
	require.NoError(t, b.StepDown(), "the kernel does the same when the process dies")
	require.NoError(t, a.Activate())
}

// Only a newer pod of the same release is a successor. A restarted pod keeps
// its age.
func TestSuccessors(t *testing.T) {
	for name, tc := range map[string]struct {
		active, waiting    instances.Identity
		successor, foreign bool
	}{
		"newer pod":  {instances.Identity{PodUID: first}, instances.Identity{PodUID: second}, true, false},
		"older pod":  {instances.Identity{PodUID: second}, instances.Identity{PodUID: first}, false, false},
		"same pod":   {instances.Identity{PodUID: first}, instances.Identity{PodUID: first}, false, false},
		"newest pod": {instances.Identity{PodUID: first}, instances.Identity{PodUID: third}, true, false},
		"no pods":    {instances.Identity{}, instances.Identity{}, false, false},
		"not an UID": {instances.Identity{PodUID: first}, instances.Identity{PodUID: "\n../x"}, false, false},
		"another release": {
			active:  instances.Identity{PodUID: first, Release: "a/r"},
			waiting: instances.Identity{PodUID: second, Release: "b/r"},
			foreign: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, pod := range []string{first, second, third} {
				open(t, dir, pod, "")
			}
			active, waiting := open(t, dir, tc.active.PodUID, tc.active.Release), open(t, dir, tc.waiting.PodUID, tc.waiting.Release)
			require.NoError(t, active.Activate())
			err := held(t, waiting)
			require.Equal(t, instances.HeldError{By: tc.active, Successor: tc.successor, Foreign: tc.foreign}, *err)
			// The active instance decides for itself, whatever the waiting one
			// believes.
			require.NoError(t, waiting.Ask())
			require.Equal(t, tc.successor, asked(t, active))
		})
	}
}

// An instance that looks whether one asks is not taken for the one that asked, and has gone.
func TestLookIsNoQuestion(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir, first, ""), open(t, dir, second, "")
	require.NoError(t, a.Activate())
	require.NoError(t, b.Ask())
	require.True(t, asked(t, a))
	require.NoError(t, b.StepDown())
	f, err := os.Open(filepath.Join(dir, "next.lock"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_SH))
	require.False(t, asked(t, a))
	require.NoError(t, open(t, dir, third, "").Ask(), "a look keeps no instance from asking")
	require.True(t, asked(t, a))
}

// Of two instances that ask, the newest goes first, whichever asked first.
func TestTwoAsk(t *testing.T) {
	dir := t.TempDir()
	a, b, c := open(t, dir, first, ""), open(t, dir, second, ""), open(t, dir, third, "")
	require.NoError(t, a.Activate())
	require.NoError(t, b.Ask())
	require.NoError(t, c.Ask())
	require.True(t, asked(t, a))
	require.NoError(t, a.StepDown())
	_ = held(t, b)
	require.NoError(t, c.Activate())
}

// The newest instance goes first if an older one asks after it, and if its
// question was lost. Then the older one has its turn.
func TestQuestionIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	a, b, c := open(t, dir, first, ""), open(t, dir, second, ""), open(t, dir, third, "")
	require.NoError(t, a.Activate())
	require.NoError(t, c.Ask())
	require.NoError(t, b.Ask())
	require.NoError(t, a.StepDown())
	_ = held(t, b)
	require.NoError(t, c.Activate())
	require.NoError(t, c.StepDown())
	require.NoError(t, a.Activate())

	require.NoError(t, c.Ask())
	require.NoError(t, os.Remove(filepath.Join(dir, "next.lock")))
	require.NoError(t, b.Ask(), "both asked at the same moment, and this one was the later")
	require.NoError(t, c.Ask())
	require.NoError(t, a.StepDown())
	_ = held(t, b)
	require.NoError(t, c.Activate())
	require.NoError(t, c.StepDown())
	require.NoError(t, b.Ask())
	require.NoError(t, b.Activate())
}

// Only the active instance begins sections (I1).
func TestSections(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t, dir, first, ""), open(t, dir, second, "")
		_, err := b.Acquire()
		require.ErrorContains(t, err, "has not handed over yet", "kubelet's call ends in time")
		require.NoError(t, a.Activate())
		leave, err := a.Acquire()
		require.NoError(t, err)
		require.NoError(t, leave())

		// A call that waits goes on once its instance is the active one.
		var calls sync.WaitGroup
		calls.Go(func() {
			leave, err := b.Acquire()
			if err == nil {
				err = leave()
			}
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		require.NoError(t, a.StepDown())
		require.NoError(t, b.Activate())
		calls.Wait()
		_, err = a.Acquire()
		require.ErrorContains(t, err, "has not handed over yet")
	})
}

// Release waits for the section that has begun: the section would otherwise
// write after the next instance has begun (I1).
func TestReleaseWaitsForTheSection(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		a, b := open(t, dir, first, ""), open(t, dir, second, "")
		require.NoError(t, a.Activate())
		leave, err := a.Acquire()
		require.NoError(t, err)
		begun, released := make(chan struct{}), make(chan error)
		go func() {
			close(begun)
			released <- a.StepDown()
		}()
		<-begun
		runtime.Gosched()
		_ = held(t, b)
		require.NoError(t, leave())
		require.NoError(t, <-released)
		require.NoError(t, b.Activate())
	}
}

// Kubelet can make many calls at once. One thread of the process waits for the file of the lock, and no thread for each call.
func TestOneThreadWaits(t *testing.T) {
	const calls = 30
	i := open(t, t.TempDir(), first, "ns/r")
	require.NoError(t, i.Activate())
	release, err := i.Acquire()
	require.NoError(t, err)
	var waiting sync.WaitGroup
	for range calls {
		waiting.Go(func() {
			release, err := i.Acquire()
			if err == nil {
				err = release()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	// blocked returns how many calls wait for the mutex, and how many in the system call.
	blocked := func() (mutex, file int) {
		stacks := make([]byte, 1<<20)
		for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			switch {
			case !strings.Contains(stack, "(*Instance).Acquire"):
			case strings.Contains(stack, "sync.(*Mutex).Lock"):
				mutex++
			case strings.Contains(stack, "syscall.Flock"):
				file++
			}
		}
		return mutex, file
	}
	require.Eventually(t, func() bool {
		mutex, file := blocked()
		return mutex+file == calls
	}, time.Minute, time.Millisecond)
	_, file := blocked()
	require.LessOrEqual(t, file, 1)
	require.NoError(t, release())
	waiting.Wait()
}

// The files may have content that this program did not write.
func TestForeignContent(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "binary": "\x00\xff", "another shape": "[]", "long": string(make([]byte, 1<<17)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range []string{"active.lock", "next.lock"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			a, b := open(t, dir, first, ""), open(t, dir, second, "")
			require.NoError(t, a.Activate())
			require.True(t, held(t, b).Successor)
			require.NoError(t, b.Ask())
			require.True(t, asked(t, a))
		})
	}
}

// The order drops the oldest pods. An instance that it has dropped is the
// oldest.
func TestOrderIsBounded(t *testing.T) {
	dir := t.TempDir()
	old := open(t, dir, first, "")
	for n := range 100 {
		open(t, dir, "00000000-0000-4000-9000-0000000000"+string(rune('0'+n/10))+string(rune('0'+n%10)), "")
	}
	data, err := os.ReadFile(filepath.Join(dir, "instances"))
	require.NoError(t, err)
	require.Less(t, len(data), 2000)
	next := open(t, dir, second, "")
	require.NoError(t, old.Activate())
	require.True(t, held(t, next).Successor)
}

// FuzzForeignContent: the files have any content, and the one instance becomes the active
// one.
func FuzzForeignContent(f *testing.F) {
	f.Add([]byte(`{"podUID":"`+second+`","release":"ns/r"}`), []byte(second+"\n"+first+"\n"))
	f.Add([]byte("null"), []byte("\x00"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, identity, order []byte) {
		for _, file := range []string{"active.lock", "next.lock"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), identity, 0o600))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "instances"), order, 0o600))
		i, err := instances.Open(dir, instances.Identity{PodUID: first, Release: "ns/r"})
		if err != nil {
			require.Greater(t, len(order), 64<<10, "%v", err)
			return
		}
		require.NoError(t, i.Activate())
		require.NoError(t, i.StepDown())
	})
}

// An instance that was killed while it wrote the order has left a temporary file. Files of other names stay.
func TestUnfinishedOrderIsRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".instances.tmp-1", ".next.lock.tmp-1"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	open(t, dir, first, "ns/r")
	require.NoFileExists(t, filepath.Join(dir, ".instances.tmp-1"))
	require.FileExists(t, filepath.Join(dir, ".next.lock.tmp-1"), "an instance that asks may be writing it")
}
