// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"maps"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/logs"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// Units makes systemd follow the values in the cgroups of its units: otherwise
// systemd restores its own values at its next reload. No call waits for
// systemd.
type Units interface {
	// Set makes systemd follow files. It is called before the files of a
	// container are written, and after the files of a systemd slice.
	Set(dir string, files map[string]string) error
	// Correct is Set for a container that has the wanted values.
	Correct(dir string, files map[string]string) error
	// Again makes Set send values again that another program has changed.
	Again(dir string)
	// UpToDate reports whether systemd has all values of Set.
	UpToDate(dir string) bool
	// Forget drops a cgroup that is gone, or that this driver does not write.
	Forget(dir string) error
	// ForgetExcept drops the values of slices except dirs. Drop-ins stay.
	ForgetExcept(dirs []string)
	// Reset sends the values of all slices again, and removes the drop-ins of all units
	// except dirs.
	Reset(dirs []string) error
}

// syncUnit makes systemd follow a pod or level, and ends the giving back of former
// values when systemd has them (I4). given are the values that were given back
// in this round.
func (e *Enforcer) syncUnit(ctx context.Context, dir string, want tree.Cgroup, state tree.State, given contract.Files, s scope) error {
	settled := e.Units.UpToDate(dir)
	e.looked[dir] = true
	e.follow(ctx, dir, want.Files, false)
	if !s.all {
		return nil
	}
	returned, theirs := state.GivenBack(want.Files)
	maps.Copy(returned, given)
	var errs []error
	if len(theirs) > 0 {
		errs = append(errs, e.Mount.RemoveMarks(dir, theirs))
	}
	if len(theirs) > 0 && settled {
		// Systemd must not get the content again that this driver wrote into such a file.
		e.forgetUnit(ctx, dir)
		e.follow(ctx, dir, want.Files, false)
	}
	if len(returned) == 0 {
		return errors.Join(errs...)
	}
	e.follow(ctx, dir, returned, false)
	if e.Units.UpToDate(dir) {
		// From here on the files are kubelet's again.
		e.forgetUnit(ctx, dir)
		e.follow(ctx, dir, want.Files, false)
		errs = append(errs, e.Mount.RemoveMarks(dir, returned))
	}
	return errors.Join(errs...)
}

// follow makes systemd follow the files of the cgroup dir. correct is for files
// that have their contents already. After an error systemd's next
// reload brings its own values back, and the next round repairs them.
func (e *Enforcer) follow(ctx context.Context, dir string, files contract.Files, correct bool) {
	if len(files) == 0 {
		return
	}
	set := e.Units.Set
	if correct {
		set = e.Units.Correct
	}
	if err := set(dir, files); err != nil {
		logs.From(ctx).Error("systemd does not follow", zap.String("cgroup", dir), zap.Error(err))
	}
}

func (e *Enforcer) forgetUnit(ctx context.Context, dir string) {
	if err := e.Units.Forget(dir); err != nil {
		logs.From(ctx).Warn("drop-in stays", zap.String("cgroup", dir), zap.Error(err))
	}
}
