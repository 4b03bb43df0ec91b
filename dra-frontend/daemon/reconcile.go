// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/inventory"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
)

// reconcile writes the node state of the prepared claims and reads the actuator's
// announcement. It reports whether the slices must change.
func (d *Daemon) reconcile(ctx context.Context) bool {
	n, _ := d.status.get()
	claims, blocked := d.driver.Reconcile()
	changed := false
	if blocked == nil || claims != nil || d.offered.Load() == nil {
		// An unreadable directory still has its claims: the last list stays.
		d.joins.Follow(ctx, claims)
		changed = d.offer(claims)
		d.assess(&n, claims)
	}
	if blocked != nil && (n.blocked == nil || n.blocked.Error() != blocked.Error()) {
		d.o.Log.Error("this node takes no new claims", zap.Error(blocked))
	}
	if blocked == nil && n.blocked != nil {
		d.o.Log.Info("node state is current")
	}
	n.blocked = blocked
	changed = d.observe(n) || changed
	d.protect()
	return changed
}

// offer computes the zones to publish beside these claims, and reports whether
// the zones changed.
func (d *Daemon) offer(claims []contract.ClaimRecord) bool {
	machine := d.machine.Load()
	zs := machine.Offer(claims)
	displaced := machine.Displaced(claims)
	for _, c := range displaced {
		if !slices.ContainsFunc(d.displaced, func(known contract.ClaimRecord) bool { return known.UID == c.UID }) {
			d.o.Log.Warn("claim is on a device that is not offered any more: "+
				"what it holds is left out of the capacities until it is released",
				zap.String("claim", c.Namespace+"/"+c.Name), zap.String("uid", c.UID), zap.Stringer("cpus", c.CPUs()))
		}
	}
	d.displaced = displaced
	d.o.Metrics.Displaced(len(displaced))
	if old := d.offered.Swap(&zs); old != nil {
		return !reflect.DeepEqual(*old, zs)
	}
	return true
}

// assess finds the parts of claims that the machine lacks, and lost partitions. It
// reports them to kubelet (in n), in the log, as metrics and as events.
func (d *Daemon) assess(n *node, claims []contract.ClaimRecord) {
	report := health.Check(d.machine.Load().Machine, claims, d.partitions.invalid)
	for device, reason := range report.Devices {
		if n.unhealthy[device] != reason {
			d.o.Log.Warn("device is unhealthy, its claims keep what is left", zap.String("device", device), zap.String("reason", reason))
		}
	}
	for device := range n.unhealthy {
		if report.Devices[device] == "" {
			d.o.Log.Info("device is healthy again", zap.String("device", device))
		}
	}
	n.unhealthy = report.Devices
	d.o.Metrics.Unhealthy(len(report.Devices))
	d.claims, d.health = claims, report.Results
	d.partitions.report(claims)
}

// checkActuator reads the announcement, and reports whether the slices must
// change.
func (d *Daemon) checkActuator() bool {
	n, _ := d.status.get()
	before := d.health
	changed := d.observe(n)
	if d.protection.unsettled() || !maps.Equal(before, d.health) {
		d.protect()
	}
	return changed
}

// observe adds the announcement's findings to n, stores n, and reports whether the
// slices must change.
func (d *Daemon) observe(n node) bool {
	before := n.actuator
	a, err := actuator{dir: d.o.Config.CDIDir}.Announcement()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		d.o.Log.Error("claims wait for the actuator", zap.Error(err))
	}
	if err == nil && before != nil {
		d.o.Log.Info("actuator is ready",
			zap.String("runtime", a.Runtime), zap.String("runtimeVersion", a.RuntimeVersion), zap.String("guard", a.Guard))
	}
	d.protection.onAnnouncement(a)
	if err == nil && d.partitions.onAnnouncement(a) {
		d.assess(&n, d.claims)
	}
	n.actuator = err
	n.empty = len(d.machine.Load().Zones) == 0
	d.o.Metrics.Node(n.blocked, n.actuator)
	d.report(n)
	return d.status.set(n)
}

// rediscover reads the machine again and reports whether the offer changed. After
// an error the last machine stays, as claims depend on it.
func (d *Daemon) rediscover() bool {
	machine, err := d.discover()
	if err != nil {
		d.o.Log.Error("machine not read, the last known one stands", zap.Error(err))
		return false
	}
	// Swap in any case: health needs more of the machine than Equal compares.
	before := d.machine.Swap(&machine)
	if machine.Equal(*before) {
		return false
	}
	d.o.Log.Info("machine changed", zap.Strings("zones", machine.Names()))
	d.logLeftOut(machine)
	d.driver.SetInventory(machine.ForDecisions(d.o.Config, d.bootID))
	return true
}

// logLeftOut logs the parts of the machine that are not offered, and why.
func (d *Daemon) logLeftOut(machine inventory.Inventory) {
	for _, l := range machine.LeftOut() {
		d.o.Log.Warn("a part of the machine is not offered", zap.String("what", l.What), zap.String("why", l.Why))
	}
}

func (d *Daemon) discover() (inventory.Inventory, error) {
	m, err := topology.Discover(topology.At(d.o.Config.SysfsRoot, d.o.Config.ProcRoot), d.o.PageSize)
	if err != nil {
		return inventory.Inventory{}, fmt.Errorf("read the machine: %w", err)
	}
	for _, warning := range m.Warnings {
		if before := d.machine.Load(); before == nil || !slices.Contains(before.Machine.Warnings, warning) {
			d.o.Log.Warn("the machine is read with a fallback", zap.String("warning", warning))
		}
	}
	return inventory.Compute(d.o.Config, m)
}
