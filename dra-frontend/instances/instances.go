// SPDX-License-Identifier: Apache-2.0

// Package instances decides which frontend of a node is the active instance.
// The active instance alone serves kubelet, writes the CDI directory and
// publishes slices. During a rolling update two frontends run, and their
// configurations may differ: if both wrote, they would overwrite each other
// without end.
//
// The active instance holds a lock, which the kernel drops when the instance
// dies. A newer instance of the same release asks for the lock once kubelet has
// registered it, and the active instance hands over. An older instance and an
// instance of another release wait until the lock is free. Pods are ordered by
// their first start, so that a restarted container does not become the newest.
package instances

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
)

// Files in the directory of the instances.
const (
	// fileActive is locked by the active instance and has its identity.
	fileActive = "active.lock"
	// fileNext is locked by the instance that asks to become the active one and
	// has its identity.
	fileNext = "next.lock"
	// fileOrder lists pods by their first start, oldest first.
	fileOrder = "instances"
	// fileSections is locked while the CDI directory is read and written.
	fileSections = "ledger.lock"
)

const (
	// maxFile is in bytes, far above the size of these files.
	maxFile = 64 << 10
	// maxOrder is how many pods fileOrder keeps, more than ever run together.
	maxOrder = 32
	fileMode = 0o600
)

// activationTimeout is how long a call of kubelet waits for its instance to become the
// active one. Kubelet waits 45 s for the call.
const activationTimeout = 10 * time.Second

// Identity is the pod and the release of an instance.
type Identity struct {
	// PodUID is the UID of the instance's pod, empty outside a pod.
	PodUID string `json:"podUID"`
	// Release is the release of the instance as "namespace/name", empty if it
	// is not known.
	Release string `json:"release"`
}

// String returns the identity for messages, printable and bounded.
func (i Identity) String() string {
	return fmt.Sprintf("pod UID %.80q of release %.160q", i.PodUID, i.Release)
}

// HeldError means that this instance is not the active one: another instance is,
// or is about to be.
type HeldError struct {
	// By is the active instance, or the one that asks to become it.
	By Identity
	// Successor reports whether the active instance hands over when this one
	// asks.
	Successor bool
	// Foreign reports whether the active instance is of another release.
	Foreign bool
}

// Error implements error.
func (e *HeldError) Error() string {
	switch {
	case e.Foreign:
		return fmt.Sprintf("a frontend of another release serves this node (%s): "+
			"two releases cannot share a node, uninstall one of them", e.By)
	case e.Successor:
		return fmt.Sprintf("an older instance of the frontend serves this node (%s) "+
			"and hands over once kubelet has registered this one", e.By)
	}
	return fmt.Sprintf("a newer instance of the frontend serves this node, or is about to serve it (%s): "+
		"this instance waits in case the newer instance ends", e.By)
}

// Instance is this process as one of the node's frontends. Its methods are safe
// for concurrent use.
type Instance struct {
	dir      string
	me       Identity
	sections cdidir.Lock
	// own is held in each section, and before it while this instance waits for sections.
	own sync.Mutex

	mu sync.Mutex
	// While this instance is the active one, active is the locked fileActive
	// and activated is closed. While it asks, asking is the locked fileNext.
	active, asking *os.File
	activated      chan struct{}
}

// Open enters this instance into the order of instances. dir is the directory
// that all instances of the node share, outside the CDI directory.
func Open(dir string, me Identity) (*Instance, error) {
	i := &Instance{dir: dir, me: me, sections: cdidir.NewLock(filepath.Join(dir, fileSections)), activated: make(chan struct{})}
	release, err := i.sections.Acquire()
	if err != nil {
		return nil, err
	}
	return i, errors.Join(i.removeStale(), i.joinOrder(), release())
}

// removeStale removes what an instance left that was killed while it wrote the order of instances.
func (i *Instance) removeStale() error {
	return atomicfile.RemoveStale(i.dir, func(name string) bool { return name == fileOrder })
}

func (i *Instance) joinOrder() error {
	if !contract.ValidUID(i.me.PodUID) {
		return nil
	}
	order, err := i.order()
	if err != nil || slices.Contains(order, i.me.PodUID) {
		return err
	}
	order = append(order, i.me.PodUID)
	order = order[max(0, len(order)-maxOrder):]
	if err := atomicfile.Write(i.dir, fileOrder, []byte(strings.Join(order, "\n")+"\n"), fileMode); err != nil {
		return fmt.Errorf("write the order of instances: %w", err)
	}
	return nil
}

func (i *Instance) order() ([]string, error) {
	data, err := atomicfile.Read(i.dir, fileOrder, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the order of instances: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// otherRelease reports whether i and other are of different releases. An instance that
// does not know its release, as with an older chart, is of no other release.
func (i Identity) otherRelease(other Identity) bool {
	return i.Release != "" && other.Release != "" && i.Release != other.Release
}

// succeeds reports whether instance a may take over from instance b.
func (i *Instance) succeeds(a, b Identity) (bool, error) {
	if a.otherRelease(b) {
		return false, nil
	}
	order, err := i.order()
	return slices.Index(order, a.PodUID) > slices.Index(order, b.PodUID), err
}

// Activate makes this instance the active one. The error is a *HeldError if
// another instance is active, or if an instance asks that may take over from
// this one.
func (i *Instance) Activate() error {
	switch next, err := i.successor(); {
	case err != nil:
		return err
	case next != nil:
		return &HeldError{By: *next}
	}
	f, err := os.OpenFile(filepath.Join(i.dir, fileActive), os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	if err := lock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		return i.heldBy(f)
	}
	if err := i.writeIdentity(f); err != nil {
		return errors.Join(fmt.Errorf("name the active instance: %w", err), f.Close())
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active = f
	close(i.activated)
	return i.withdrawQuestion()
}

func (i *Instance) heldBy(f *os.File) error {
	by := read(f)
	successor, err := i.succeeds(i.me, by)
	if err != nil {
		return err
	}
	return &HeldError{By: by, Successor: successor, Foreign: i.me.otherRelease(by)}
}

// writeIdentity writes the identity of this instance. Until then readers see the former
// active instance and may ask in vain, so the active instance checks each
// question itself.
func (i *Instance) writeIdentity(f *os.File) error {
	data, err := json.Marshal(i.me)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return err
}

// Ask asks the active instance to hand over, unless an instance asks that may
// take over from this one. The question stands until this instance is active or
// ends. The caller repeats the call until then: of two instances that ask at
// the same moment, the later one replaces the question of the earlier one.
func (i *Instance) Ask() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if next, err := i.successor(); err != nil || next != nil {
		return err
	}
	if stands, err := i.isAsking(); err != nil || stands {
		return err
	}
	if err := i.withdrawQuestion(); err != nil {
		return err
	}
	data, err := json.Marshal(i.me)
	if err != nil {
		return err
	}
	i.asking, err = atomicfile.WriteHeld(i.dir, fileNext, data, fileMode, lock)
	if err != nil {
		return fmt.Errorf("ask the active instance to hand over: %w", err)
	}
	return nil
}

// isAsking reports whether the question in the directory is from this instance.
func (i *Instance) isAsking() (bool, error) {
	if i.asking == nil {
		return false, nil
	}
	mine, err := i.asking.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(filepath.Join(i.dir, fileNext))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// withdrawQuestion takes the question back. The caller holds the mutex.
func (i *Instance) withdrawQuestion() error {
	if i.asking == nil {
		return nil
	}
	err := i.asking.Close()
	i.asking = nil
	return err
}

// Asked reports whether a newer instance of the same release asks to take over.
func (i *Instance) Asked() (bool, error) {
	next, err := i.successor()
	return next != nil, err
}

// successor returns the instance that asks and may take over from this one, or nil.
func (i *Instance) successor() (*Identity, error) {
	f, err := os.OpenFile(filepath.Join(i.dir, fileNext), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The lock of a probe is shared: another instance that probes must not take it for the lock of an instance that asks.
	if err := flock(f, syscall.LOCK_SH); err == nil {
		return nil, nil
	} else if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, err
	}
	by := read(f)
	if mayTakeOver, err := i.succeeds(by, i.me); err != nil || !mayTakeOver {
		return nil, err
	}
	return &by, nil
}

// StepDown makes this instance wait again. It returns after the section that has
// begun, and no section begins after it.
func (i *Instance) StepDown() error {
	release, err := i.sections.Acquire()
	if err != nil {
		release = func() error { return nil }
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	err = errors.Join(err, i.withdrawQuestion())
	if i.active != nil {
		err = errors.Join(err, i.active.Close())
		i.active, i.activated = nil, make(chan struct{})
	}
	return errors.Join(err, release())
}

// errWaiting is the answer to kubelet while another instance is the active one.
var errWaiting = errors.New("another instance of the frontend serves this node and has not handed over yet: kubelet tries again")

// Acquire implements kubelet.Lock: it begins a section that reads and writes the
// CDI directory. Only the active instance has sections (I1). Another instance
// waits for its turn for the activationTimeout, and the error is errWaiting then.
func (i *Instance) Acquire() (release func() error, err error) {
	i.mu.Lock()
	activated := i.activated
	i.mu.Unlock()
	select {
	case <-activated:
	case <-time.After(activationTimeout):
		return nil, errWaiting
	}
	// A thread waits for the lock's file: all but one of many calls wait here, without a thread each.
	i.own.Lock()
	unlock, err := i.sections.Acquire()
	if err != nil {
		i.own.Unlock()
		return nil, err
	}
	release = func() error {
		defer i.own.Unlock()
		return unlock()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.active == nil {
		return nil, errors.Join(errWaiting, release())
	}
	return release, nil
}

// lock takes the file's lock for this instance alone.
func lock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// flock takes the file's lock without waiting. The kernel drops the lock when
// the file is closed.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// read returns the identity in the file, or an empty identity if there is none.
func read(f *os.File) Identity {
	var id Identity
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxFile))
	if err != nil || json.Unmarshal(data, &id) != nil {
		return Identity{}
	}
	return id
}
