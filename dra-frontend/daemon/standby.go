// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"go.uber.org/zap"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/instances"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/notices"
)

// standbyInterval is how often an instance that waits tries to become the
// active one: two tries of a lock.
const standbyInterval = 200 * time.Millisecond

// errHandedOver ends the turn of an instance that a newer one has asked.
var errHandedOver = errors.New("a newer instance of the frontend has asked to take over")

// reasonSecondRelease is the reason of the event about another installation.
const reasonSecondRelease = "SecondRelease"

// activate waits until this instance is the active one. One that may succeed
// the active instance registers with kubelet before it asks for its place, so
// that an instance that kubelet does not take changes nothing on the node. The
// helper is nil if there was no need to register yet.
func (d *Daemon) activate(ctx context.Context, fail context.CancelCauseFunc) (helper *kubeletplugin.Helper, err error) {
	defer func() {
		if err != nil {
			d.withdraw(helper)
			helper = nil
		}
	}()
	ticker := time.NewTicker(standbyInterval)
	defer ticker.Stop()
	for {
		err := d.instance.Activate()
		held := new(instances.HeldError)
		if err == nil {
			d.stands(nil)
			return helper, nil
		}
		if !errors.As(err, &held) {
			return helper, err
		}
		d.stands(held)
		switch {
		case !held.Successor:
			// Kubelet prefers what it registered last.
			d.withdraw(helper)
			helper = nil
		case helper == nil:
			if helper, err = d.serve(ctx, fail); err != nil {
				return nil, err
			}
		case d.kubelet.missing() == nil:
			if err := d.instance.Ask(); err != nil {
				return helper, err
			}
		}
		select {
		case <-ctx.Done():
			return helper, ctx.Err()
		case <-ticker.C:
		}
	}
}

// stands notes for which active instance this one waits, nil for none.
func (d *Daemon) stands(held *instances.HeldError) {
	d.o.Metrics.Active(held == nil)
	var err error
	if held != nil {
		err = held
		d.fitness.tell(nil)
	}
	if text(err) == text(d.status.stand(err)) {
		return
	}
	switch {
	case held == nil:
		d.o.Log.Info("this instance is the active one")
	case held.Foreign:
		d.o.Log.Error("this instance waits", zap.Error(held))
		d.notices.Send(notices.Notice{Reason: reasonSecondRelease, Note: held.Error()})
	default:
		d.o.Log.Info("this instance waits", zap.Error(held))
	}
}

// asked reports whether a newer instance asks for the place of this one.
func (d *Daemon) asked() bool {
	asked, err := d.instance.Asked()
	if err != nil {
		d.o.Log.Error("not known whether a newer instance of the frontend waits", zap.Error(err))
	}
	return asked
}

func (d *Daemon) release() {
	if err := d.instance.Release(); err != nil {
		d.o.Log.Error("place of the active instance not released", zap.Error(err))
	}
}
