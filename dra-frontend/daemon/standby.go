// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/instances"
)

// standbyInterval is how often a waiting instance tries to become the active
// one. A try costs two lock calls.
const standbyInterval = 200 * time.Millisecond

// errHandedOver ends a turn after a newer instance has asked to take over.
var errHandedOver = errors.New("a newer instance of the frontend has asked to take over")

// reasonSecondRelease is the reason of the event about another release on this
// node.
const reasonSecondRelease = "SecondRelease"

// activate waits until this instance is the active one. A successor registers
// with kubelet before it asks the active instance to hand over, so that an
// instance that kubelet refuses changes nothing on the node. The helper is nil
// if this instance has not registered.
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
			d.setStandby(nil)
			return helper, nil
		}
		if !errors.As(err, &held) {
			return helper, err
		}
		d.setStandby(held)
		switch {
		case !held.Successor:
			// Kubelet calls the instance that it registered last.
			d.withdraw(helper)
			helper = nil
		case helper == nil:
			if helper, err = d.serve(ctx, fail); err != nil {
				return nil, err
			}
		case d.registration.missing() == nil:
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

// setStandby stores and reports which active instance this one waits for, nil if
// this instance is the active one.
func (d *Daemon) setStandby(held *instances.HeldError) {
	d.o.Metrics.Active(held == nil)
	var err error
	if held != nil {
		err = held
		d.reports.remindOfFaults(nil)
	}
	if text(err) == text(d.status.setStandby(err)) {
		return
	}
	switch {
	case held == nil:
		d.o.Log.Info("this instance is the active one")
	case held.Foreign:
		d.o.Log.Error("this instance waits", zap.Error(held))
		d.events.Send(events.Notice{Reason: reasonSecondRelease, Note: held.Error()})
	default:
		d.o.Log.Info("this instance waits", zap.Error(held))
	}
}

// asked reports whether a newer instance asks this one to hand over.
func (d *Daemon) asked() bool {
	asked, err := d.instance.Asked()
	if err != nil {
		d.o.Log.Error("not known whether a newer instance of the frontend waits", zap.Error(err))
	}
	return asked
}

func (d *Daemon) stepDown() {
	if err := d.instance.StepDown(); err != nil {
		d.o.Log.Error("place of the active instance not released", zap.Error(err))
	}
}
