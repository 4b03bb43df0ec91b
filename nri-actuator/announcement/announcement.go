// SPDX-License-Identifier: Apache-2.0

// Package announcement keeps the actuator's announcement in the CDI directory.
// The file's content says what this actuator can do; the file's lock shows that
// the actuator is alive. Without it the frontend prepares no claim.
package announcement

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
)

// mode allows a frontend that is not root to read the file.
const mode = 0o644

// ErrHeld means that another actuator is alive on this node.
var ErrHeld = errors.New("another nri-actuator holds the announcement")

// Announcement is the open and locked file.
type Announcement struct {
	dir string

	mu      sync.Mutex
	content contract.Announcement
	file    *os.File
	closed  bool
}

// New writes the announcement into dir and holds it. While another process
// holds it, the error is [ErrHeld]: two actuators would claim the same fields
// of each container and fail each other's containers.
func New(dir string, base contract.Announcement) (*Announcement, error) {
	// The lock makes the search for another actuator and the write one step. Without
	// it two actuators could both find no announcement.
	dirFile, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer dirFile.Close()
	switch err := syscall.Flock(int(dirFile.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
		return nil, fmt.Errorf("%w: another process has the lock of %s", ErrHeld, dir)
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	switch other, err := contract.ReadAnnouncement(dir); {
	case err == nil:
		return nil, fmt.Errorf("%w: process %d, started %s: end it first", ErrHeld, other.PID, other.Started)
	case errors.Is(err, contract.ErrActuatorDead):
	default:
		// The announcement cannot be read, so its writer may be alive.
		return nil, fmt.Errorf("%w: %w", ErrHeld, err)
	}
	if err := atomicfile.RemoveStale(dir, func(name string) bool { return name == contract.ActuatorFile }); err != nil {
		return nil, err
	}
	a := &Announcement{dir: dir, content: base}
	if err := a.write(base); err != nil {
		return nil, err
	}
	if !a.mine() {
		// An actuator that takes no lock of the directory, of an earlier version, found no
		// announcement at the same time and wrote last.
		return nil, errors.Join(fmt.Errorf("%w: another actuator took it at the same moment", ErrHeld), a.file.Close())
	}
	return a, nil
}

// Set changes the content. It writes nothing if the content is the same and the file
// is in place. It writes nothing after Close, because a blocked goroutine may call Set
// late.
func (a *Announcement) Set(change func(*contract.Announcement)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	content := a.content
	change(&content)
	if reflect.DeepEqual(content, a.content) && a.mine() {
		return nil
	}
	return a.write(content)
}

// Close drops the lock and removes the file, unless another actuator has
// replaced it.
func (a *Announcement) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	var err error
	if a.mine() {
		err = atomicfile.Remove(a.dir, contract.ActuatorFile)
	}
	err = errors.Join(err, a.file.Close())
	a.file = nil
	return err
}

func (a *Announcement) write(content contract.Announcement) error {
	data, err := contract.EncodeAnnouncement(content)
	if err != nil {
		return err
	}
	// The new file is locked before it gets its name, and the old file stays
	// open until then: no reader finds an unlocked file.
	file, err := atomicfile.WriteHeld(a.dir, contract.ActuatorFile, data, mode, contract.LockAnnouncement)
	if err != nil {
		return fmt.Errorf("announcement: %w", err)
	}
	if a.file != nil {
		err = a.file.Close()
	}
	a.file, a.content = file, content
	return err
}

// mine reports whether the name is the held file's.
func (a *Announcement) mine() bool {
	if a.file == nil {
		return false
	}
	held, err := a.file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(filepath.Join(a.dir, contract.ActuatorFile))
	return err == nil && os.SameFile(held, named)
}
