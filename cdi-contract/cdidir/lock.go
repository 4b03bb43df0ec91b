// SPDX-License-Identifier: Apache-2.0

package cdidir

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock excludes other processes, and other goroutines of this process, by a
// lock on a file. The kernel releases the lock when its holder dies.
type Lock struct{ path string }

// NewLock returns a lock on the file at path, which Acquire creates. The file
// must be outside the CDI directory, because each change there makes runtimes
// read all CDI files again.
func NewLock(path string) Lock { return Lock{path: path} }

// Acquire waits for the lock. release gives it back.
func (l Lock) Acquire() (release func() error, err error) {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", l.path, err), f.Close())
	}
	return f.Close, nil
}
