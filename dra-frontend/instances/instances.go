// SPDX-License-Identifier: Apache-2.0

// Package instances decides which of the frontends on a node is the active
// one: it alone serves kubelet, writes the CDI directory and publishes. During
// a rolling update two frontends run, with configurations that may differ, and
// two that write would overwrite each other without end.
//
// The active instance holds a lock that the kernel drops when it dies. A newer
// instance of the same release asks for it once kubelet has registered it, and
// the active one hands over; an older one waits until the lock is free, as does
// one of another release. Pods are ordered by their first start, so that a
// container that is started again does not become the newest.
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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/durable"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cdidir"
)

// Files in the directory of the locks.
const (
	// fileActive is locked by the active instance and names it.
	fileActive = "active.lock"
	// fileNext is locked by the instance that asks to be the active one and
	// names it.
	fileNext = "next.lock"
	// fileOrder lists pods by their first start, oldest first.
	fileOrder = "instances"
	// fileSections is locked while the CDI directory is read and written.
	fileSections = "ledger.lock"
)

const (
	// maxFile is far above what one of the files has.
	maxFile = 64 << 10
	// maxOrder is how many pods are remembered: more than ever overlap.
	maxOrder = 32
	fileMode = 0o600
)

// patience is how long a call of kubelet waits for its instance to become the
// active one. Kubelet itself waits for 45 s.
const patience = 10 * time.Second

// Identity is who an instance is.
type Identity struct {
	// PodUID is the UID of the instance's pod, empty outside of a pod.
	PodUID string `json:"podUID"`
	// Release is the installation that the instance is part of, as
	// "namespace/name"; empty if it is not known.
	Release string `json:"release"`
}

// String names the instance for people, in a few printable bytes.
func (i Identity) String() string {
	return fmt.Sprintf("pod UID %.80q of release %.160q", i.PodUID, i.Release)
}

// HeldError says that another instance is the active one.
type HeldError struct {
	// By is the active instance.
	By Identity
	// Successor reports whether the active instance hands over when it is asked.
	Successor bool
	// Foreign reports whether the active instance is of another release.
	Foreign bool
}

// Error implements error.
func (e *HeldError) Error() string {
	switch {
	case e.Foreign:
		return fmt.Sprintf("a frontend of another release serves this node (%s): two releases cannot share a node, uninstall one of them", e.By)
	case e.Successor:
		return fmt.Sprintf("an older instance of the frontend serves this node (%s) and hands over once kubelet has registered this one", e.By)
	}
	return fmt.Sprintf("a newer instance of the frontend serves this node (%s): this one waits in case that one ends", e.By)
}

// Instance is this process among the frontends of the node. Its methods may be
// called at the same time.
type Instance struct {
	dir      string
	me       Identity
	sections cdidir.Lock

	mu sync.Mutex
	// active is the locked file while this instance is the active one, and
	// became is closed then. asking is the locked file while it asks.
	active, asking *os.File
	became         chan struct{}
}

// Open enters this instance in the order of the instances. dir is a directory
// that all instances of the node share and nothing else uses, outside of the
// CDI directory.
func Open(dir string, me Identity) (*Instance, error) {
	i := &Instance{dir: dir, me: me, sections: cdidir.NewLock(filepath.Join(dir, fileSections)), became: make(chan struct{})}
	release, err := i.sections.Acquire()
	if err != nil {
		return nil, err
	}
	return i, errors.Join(i.enter(), release())
}

func (i *Instance) enter() error {
	if !contract.ValidUID(i.me.PodUID) {
		return nil
	}
	order, err := i.order()
	if err != nil || slices.Contains(order, i.me.PodUID) {
		return err
	}
	order = append(order, i.me.PodUID)
	order = order[max(0, len(order)-maxOrder):]
	if err := durable.Write(i.dir, fileOrder, []byte(strings.Join(order, "\n")+"\n"), fileMode); err != nil {
		return fmt.Errorf("write the order of instances: %w", err)
	}
	return nil
}

func (i *Instance) order() ([]string, error) {
	data, err := durable.Read(i.dir, fileOrder, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the order of instances: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// foreign reports whether the two are of different releases. An instance that does
// not know its release, as with an older chart, may be of any.
func (a Identity) foreign(b Identity) bool {
	return a.Release != "" && b.Release != "" && a.Release != b.Release
}

// succeeds reports whether the instance a may take over from b.
func (i *Instance) succeeds(a, b Identity) (bool, error) {
	if a.foreign(b) {
		return false, nil
	}
	order, err := i.order()
	return slices.Index(order, a.PodUID) > slices.Index(order, b.PodUID), err
}

// Activate makes this instance the active one if no other is and none asks that
// goes before this one. Else the error is a *HeldError.
func (i *Instance) Activate() error {
	if next, err := i.next(); err != nil || next != nil {
		return errors.Join(err, asError(next))
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
	if err := i.sign(f); err != nil {
		return errors.Join(fmt.Errorf("name the active instance: %w", err), f.Close())
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active = f
	close(i.became)
	return i.silence()
}

// asError keeps a nil *HeldError from becoming an error that is not nil.
func asError(e *HeldError) error {
	if e == nil {
		return nil
	}
	return e
}

func (i *Instance) heldBy(f *os.File) error {
	by := read(f)
	successor, err := i.succeeds(i.me, by)
	if err != nil {
		return err
	}
	return &HeldError{By: by, Successor: successor, Foreign: i.me.foreign(by)}
}

// sign writes who this instance is. A reader may see the name of the instance
// before: the active one looks again whom it hands over to.
func (i *Instance) sign(f *os.File) error {
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

// Ask asks the active instance to hand over, unless an instance asks that goes
// before this one. It stands until this instance is the active one or ends, and
// is repeated until then: of two that ask at the same moment the later one
// replaces the other's question.
func (i *Instance) Ask() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if next, err := i.next(); err != nil || next != nil {
		return err
	}
	if stands, err := i.stands(); err != nil || stands {
		return err
	}
	if err := i.silence(); err != nil {
		return err
	}
	data, err := json.Marshal(i.me)
	if err != nil {
		return err
	}
	i.asking, err = durable.WriteHeld(i.dir, fileNext, data, fileMode, lock)
	if err != nil {
		return fmt.Errorf("ask the active instance to hand over: %w", err)
	}
	return nil
}

// stands reports whether the question that is there is this instance's.
func (i *Instance) stands() (bool, error) {
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

// silence takes the question back. The mutex is held.
func (i *Instance) silence() error {
	if i.asking == nil {
		return nil
	}
	err := i.asking.Close()
	i.asking = nil
	return err
}

// Asked reports whether a newer instance of the same release asks for the
// place of this one.
func (i *Instance) Asked() (bool, error) {
	next, err := i.next()
	return next != nil, err
}

// next returns the instance that asks and goes before this one, nil if there is
// none.
func (i *Instance) next() (*HeldError, error) {
	f, err := os.OpenFile(filepath.Join(i.dir, fileNext), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := lock(f); err == nil {
		return nil, nil
	} else if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, err
	}
	by := read(f)
	if before, err := i.succeeds(by, i.me); err != nil || !before {
		return nil, err
	}
	return &HeldError{By: by}, nil
}

// Release makes this instance one that waits. A section that has begun ends
// before it; none begins after it.
func (i *Instance) Release() error {
	release, err := i.sections.Acquire()
	if err != nil {
		release = func() error { return nil }
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	err = errors.Join(err, i.silence())
	if i.active != nil {
		err = errors.Join(err, i.active.Close())
		i.active, i.became = nil, make(chan struct{})
	}
	return errors.Join(err, release())
}

// errWaiting is the answer to kubelet while another instance is the active one.
var errWaiting = errors.New("another instance of the frontend serves this node and has not handed over yet: kubelet tries again")

// Acquire implements plugin.Lock: it begins a section in which the CDI
// directory is read and written. One instance writes (I1): the others wait a
// while for their turn and are refused then.
func (i *Instance) Acquire() (release func() error, err error) {
	i.mu.Lock()
	became := i.became
	i.mu.Unlock()
	select {
	case <-became:
	case <-time.After(patience):
		return nil, errWaiting
	}
	release, err = i.sections.Acquire()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.active == nil {
		return nil, errors.Join(errWaiting, release())
	}
	return release, nil
}

// lock takes the file's lock, which the kernel drops with the file.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// read returns the identity in the file, that of an unknown instance if there
// is none yet.
func read(f *os.File) Identity {
	var id Identity
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxFile))
	if err != nil || json.Unmarshal(data, &id) != nil {
		return Identity{}
	}
	return id
}
