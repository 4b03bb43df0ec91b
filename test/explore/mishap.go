// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"fmt"
	"io/fs"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/disk"
)

// mishap is what goes wrong with one file operation of a process.
type mishap struct {
	kind mishapKind
	// before is the number of operations that go well before it: reads for unreadable,
	// writes for all other kinds; for powerLoss, its number among all that a power loss in
	// the action can leave.
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
	// powerLoss ends the machine, whose directories are on a disk.
	powerLoss
)

func (m mishap) String() string {
	return [...]string{"", "crash before write", "failure of write", "late failure of write", "failure of read", "power loss"}[m.kind] +
		fmt.Sprintf(" %d", m.before+1)
}

// crash is the value of the panic that ends a process.
type crash struct{}

// counts has what can go wrong in an action.
type counts struct {
	// writes is the number of writes of all processes.
	writes int
	// left are the files that a power loss in the action can leave, without those that a
	// power loss before it can leave, which are in before.
	left   []disk.Files
	before map[string]bool
	// lost reports whether the power was lost, which left the last of left.
	lost bool
}

// life counts the file operations of a process, and has its mishap.
type life struct {
	mishap
	over bool
	// wrong reports whether an operation of the present action has failed.
	wrong bool
	*counts
}

// beginCounts begins an action.
func (w *world) beginCounts() {
	w.counts = counts{before: make(map[string]bool)}
	for _, left := range w.disk.AfterPowerLoss() {
		w.counts.before[fmt.Sprint(left)] = true
	}
}

// mayLosePower notes what a power loss can leave of the disk now.
func (l *life) mayLosePower(d *disk.Disk) {
	for _, files := range d.AfterPowerLoss() {
		key := fmt.Sprint(files)
		if l.counts.before[key] {
			continue
		}
		l.counts.before[key] = true
		l.left = append(l.left, files)
		if l.kind == powerLoss && l.mishap.before == len(l.left)-1 {
			l.over, l.lost = true, true
			panic(crash{})
		}
	}
}

// write takes a write. A process that has crashed writes nothing more: deferred calls
// run while the panic unwinds.
func (l *life) write(do func() error) error {
	if l.over {
		return fs.ErrClosed
	}
	l.writes++
	if l.kind == nothing || l.kind == unreadable || l.kind == powerLoss {
		return do()
	}
	l.mishap.before--
	switch {
	case l.mishap.before != -1:
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
	if l.mishap.before--; l.mishap.before != -1 {
		return nil
	}
	l.wrong = true
	return syscall.EIO
}
