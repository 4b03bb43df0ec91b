// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"io/fs"
	"syscall"
)

// mishap is what goes wrong with one file operation of a process.
type mishap struct {
	kind mishapKind
	// before is the number of operations that go well before it: reads for unreadable,
	// writes for all other kinds.
	before int
}

type mishapKind int

const (
	nothing mishapKind = iota
	// crashes ends the process before a write.
	crashes
	// fails is a write without effect that reports an error, late one with effect.
	fails
	late
	// unreadable is a read that fails.
	unreadable
)

func (m mishap) String() string {
	return [...]string{"", "crash before write", "failure of write", "late failure of write", "failure of read"}[m.kind] +
		fmt.Sprintf(" %d", m.before+1)
}

// crash is the value of the panic that ends a process.
type crash struct{}

// life counts the file operations of a process, and has its mishap.
type life struct {
	mishap
	over bool
	// wrong reports whether an operation of the present action has failed.
	wrong bool
	// writes counts all writes of all processes.
	writes *int
}

// write takes a write. A process that has crashed writes nothing more: deferred calls
// run while the panic unwinds.
func (l *life) write(do func() error) error {
	if l.over {
		return fs.ErrClosed
	}
	*l.writes++
	if l.kind == nothing || l.kind == unreadable {
		return do()
	}
	l.before--
	switch {
	case l.before != -1:
		return do()
	case l.kind == crashes:
		l.over = true
		panic(crash{})
	}
	l.wrong = true
	if l.kind == late {
		if err := do(); err != nil {
			return err
		}
	}
	return syscall.EIO
}

// read returns the error of a read.
func (l *life) read() error {
	if l.over {
		return fs.ErrClosed
	}
	if l.kind != unreadable {
		return nil
	}
	if l.before--; l.before != -1 {
		return nil
	}
	l.wrong = true
	return syscall.EIO
}
