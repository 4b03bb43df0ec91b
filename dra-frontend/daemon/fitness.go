// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/notices"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/preflight"
)

// Reasons why a node takes no new claims, for metrics and events.
const (
	reasonNodeUnfit = "NodeUnfit"
	reasonBlocked   = "ClaimFilesUnreadable"
	reasonActuator  = "ActuatorUnavailable"
	reasonEmpty     = "NothingToOffer"
)

func unfitReasons() []string {
	return []string{reasonNodeUnfit, reasonBlocked, reasonActuator, reasonEmpty}
}

// reasonSlices is the reason of the event about slices that are not written.
const reasonSlices = "SlicesNotWritten"

var errEmpty = errors.New("no zone of this node has anything to offer: " +
	"look at reservedCPUs, reservedMemory and managedCPUs of the configuration")

// findings returns why the node takes no new claims, by reason.
func (n node) findings() map[string]error {
	found := map[string]error{reasonNodeUnfit: n.unfit, reasonBlocked: n.blocked, reasonActuator: n.actuator}
	if n.empty {
		found[reasonEmpty] = errEmpty
	}
	maps.DeleteFunc(found, func(_ string, err error) bool { return err == nil })
	return found
}

// fitness tells people what is wrong with the node. The zero value of since and
// told has told nothing.
type fitness struct {
	metrics *metrics.Metrics
	send    func(notices.Notice)
	// since is when each thing was found.
	since map[string]time.Time
	told  reminder
}

// tell tells people what is wrong with the node and with what is published of
// it.
func (d *Daemon) tell(n node) {
	found := n.findings()
	if err := d.published.failure(); err != nil {
		found[reasonSlices] = err
	}
	d.fitness.tell(found)
}

// tell is told of what is wrong now, as reason to error, again and again.
func (f *fitness) tell(found map[string]error) {
	for _, reason := range unfitReasons() {
		f.metrics.Unfit(reason, found[reason] != nil)
	}
	since, lasting := make(map[string]time.Time), make(map[string]string)
	for reason, err := range found {
		since[reason] = time.Now()
		if before, known := f.since[reason]; known {
			since[reason] = before
		}
		if time.Since(since[reason]) >= patience(reason) {
			lasting[reason] = err.Error()
		}
	}
	f.since = since
	for _, reason := range f.told.fresh(lasting) {
		f.send(notices.Notice{Reason: reason, Note: lasting[reason]})
	}
}

// patience is how long something is wrong before people are told: an actuator
// is away while it is replaced, and slices are written again after a conflict.
func patience(reason string) time.Duration {
	if slices.Contains([]string{reasonActuator, reasonSlices}, reason) {
		return grace
	}
	return 0
}

// examine looks whether the node can keep the driver's promises, and reports
// whether that is news. The error is one that only another container mends.
func (d *Daemon) examine() (changed bool, err error) {
	warnings, unfit := preflight.Check(preflight.Node{
		Proc: os.DirFS(d.o.Config.ProcRoot), Kubelet: os.DirFS(d.o.Config.KubeletRootDir),
		MemoryHigh: d.o.Config.MemoryQoS.ThrottlingFactor != nil,
	})
	if errors.Is(unfit, preflight.ErrReplaced) {
		return false, fmt.Errorf("%w: the container is started again to see it", unfit)
	}
	if !slices.Equal(warnings, d.warnings) {
		for _, w := range warnings {
			d.o.Log.Warn("preflight", zap.String("finding", w))
		}
		d.warnings = warnings
	}
	if unfit != nil {
		unfit = fmt.Errorf("this node is not fit: %w", unfit)
	}
	n, _ := d.status.get()
	if text(unfit) == text(n.unfit) {
		return false, nil
	}
	if unfit != nil {
		d.o.Log.Error("no new claims", zap.Error(unfit))
	} else {
		d.o.Log.Info("this node is fit again")
	}
	n.unfit = unfit
	return d.status.set(n), nil
}

// applier is the actuator as claims are prepared with it: on a node that is not
// fit nobody would apply them as promised.
type applier struct {
	actuator
	status *status
}

// Announcement implements plugin.Actuator.
func (a applier) Announcement() (contract.Announcement, error) {
	if n, _ := a.status.get(); n.unfit != nil {
		return contract.Announcement{}, n.unfit
	}
	return a.actuator.Announcement()
}
