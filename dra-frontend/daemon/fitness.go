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
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
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

// reasonSlices is the reason of the event about slices that the API server does
// not take.
const reasonSlices = "SlicesNotWritten"

var errEmpty = errors.New("no zone of this node has anything to offer: " +
	"look at reservedCPUs, reservedMemory and managedCPUs of the configuration")

// findings returns why the node takes no new claims: errors by reason.
func (n node) findings() map[string]error {
	found := map[string]error{reasonNodeUnfit: n.unfit, reasonBlocked: n.blocked, reasonActuator: n.actuator}
	if n.empty {
		found[reasonEmpty] = errEmpty
	}
	maps.DeleteFunc(found, func(_ string, err error) bool { return err == nil })
	return found
}

// fitness reports faults of the node as metrics and events. The zero values of
// since and sent are ready to use.
type fitness struct {
	metrics *metrics.Metrics
	send    func(events.Notice)
	// since has the time when each fault was found first, by reason.
	since map[string]time.Time
	sent  reminder
}

// report reports faults of the node and of its slices.
func (d *Daemon) report(n node) {
	found := n.findings()
	if err := d.published.failure(); err != nil {
		found[reasonSlices] = err
	}
	d.fitness.report(found)
}

// report sets the metrics and sends the events that are due. found has all present
// faults by reason.
func (f *fitness) report(found map[string]error) {
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
	for _, reason := range f.sent.fresh(lasting) {
		f.send(events.Notice{Reason: reason, Note: lasting[reason]})
	}
}

// patience returns how long a fault lasts before an event reports it. An
// actuator that is replaced is away for a while, and a conflicting write of
// slices is retried.
func patience(reason string) time.Duration {
	if slices.Contains([]string{reasonActuator, reasonSlices}, reason) {
		return grace
	}
	return 0
}

// examine checks whether the node is unfit and reports whether the answer
// differs from the last one. After an error only a new container helps.
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

// applier is the actuator for preparing claims. It returns an error on an unfit
// node, where a decision would not be applied as promised.
type applier struct {
	actuator
	status *status
}

// Announcement implements kubelet.Actuator.
func (a applier) Announcement() (contract.Announcement, error) {
	if n, _ := a.status.get(); n.unfit != nil {
		return contract.Announcement{}, n.unfit
	}
	return a.actuator.Announcement()
}
