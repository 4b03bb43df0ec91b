// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// reporter reports states of the loop: it logs differences, sets metrics, and
// sends events about faults, again each hour while a fault stays.
type reporter struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	send    func(events.Notice)
	// since has the time when each fault was found first, by reason.
	since map[string]time.Time
	// faults, partitions and places know the events that were sent: about faults
	// of the node, about lost partitions, and about cgroup files that another
	// program wrote over.
	faults, partitions, places events.Reminder
}

func newReporter(o Options, send func(events.Notice)) *reporter {
	o.Metrics.Protection(nil)
	return &reporter{log: o.Log, metrics: o.Metrics, send: send}
}

// report reports the state that follows another.
func (r *reporter) report(before, now state) {
	r.logNode(before.observation, now.observation)
	r.logClaims(before, now)
	r.measure(now)
	r.metrics.Disturbances(before.receipts, now.receipts, now.quiet)
	r.remindOfFaults(now.faults)
	r.remindOfPartitions(now.invalidPartitions)
	r.remindOfDrift(now.announced)
}

// logNode logs what has changed of the node.
func (r *reporter) logNode(before, now observation) {
	if why := now.unfit(); why != nil && text(why) != text(before.unfit()) {
		r.log.Error("this node is not fit and takes no new claims", zap.Error(why))
	}
	if now.unfit() == nil && before.unfit() != nil {
		r.log.Info("this node is fit again")
	}
	for _, w := range newWarnings(before.warnings, now.warnings) {
		r.log.Warn("preflight could not check a part of the node", zap.String("finding", w))
	}
	for _, w := range newWarnings(before.machine.Warnings, now.machine.Warnings) {
		r.log.Warn("the machine is read with a fallback", zap.String("warning", w))
	}
	// New also calls logNode before it reads the machine.
	if len(now.divided.Machine.CPUs) > 0 && !now.divided.Equal(before.divided) {
		r.log.Info("machine read", zap.Strings("zones", now.divided.Names()))
		for _, l := range now.divided.LeftOut() {
			r.log.Warn("a part of the machine is not offered", zap.String("what", l.What), zap.String("why", l.Why))
		}
	}
	if now.blocked != nil && text(now.blocked) != text(before.blocked) {
		r.log.Error("this node takes no new claims", zap.Error(now.blocked))
	}
	if now.blocked == nil && before.blocked != nil {
		r.log.Info("the claim files can be read and the node state is written again")
	}
	if now.actuatorFault != nil && text(now.actuatorFault) != text(before.actuatorFault) {
		r.log.Error("claims wait for the actuator", zap.Error(now.actuatorFault))
	}
}

// logClaims logs what has changed of the claims.
func (r *reporter) logClaims(before, now state) {
	for _, c := range now.displaced {
		if !slices.ContainsFunc(before.displaced, func(known contract.ClaimRecord) bool { return known.UID == c.UID }) {
			r.log.Warn("claim is on a device that is not offered: "+
				"what it holds is left out of the capacities until it is released",
				zap.String("claim", c.Namespace+"/"+c.Name), zap.String("uid", c.UID), zap.Stringer("cpus", c.CPUs()))
		}
	}
	for device, reason := range now.health.Devices {
		if before.health.Devices[device] != reason {
			r.log.Warn("device is unhealthy, its claims keep what is left", zap.String("device", device), zap.String("reason", reason))
		}
	}
	for device := range before.health.Devices {
		if now.health.Devices[device] == "" {
			r.log.Info("device is healthy again", zap.String("device", device))
		}
	}
	if !maps.Equal(before.protection, now.protection) {
		r.log.Debug("memory protection of claims", zap.Any("findings", slices.Collect(maps.Values(now.protection))))
	}
}

func (r *reporter) measure(now state) {
	r.metrics.Node(now.blocked, now.actuatorFault)
	r.metrics.Displaced(len(now.displaced))
	for _, reason := range health.Reasons() {
		r.metrics.Unhealthy(reason, len(now.health.ByReason[reason]))
	}
	r.metrics.InvalidPartitions(len(now.invalidPartitions))
	r.metrics.Zones(now.uses)
	r.metrics.Isolation(now.claims)
	effective := make(map[metav1.ConditionStatus]int)
	for _, f := range now.protection {
		effective[f.Status]++
	}
	r.metrics.Protection(effective)
}

// remindOfFaults sets the metrics of faults and sends the events that are due.
func (r *reporter) remindOfFaults(found map[string]error) {
	for _, reason := range refusalReasons() {
		r.metrics.Unfit(reason, found[reason] != nil)
	}
	since, lasting := make(map[string]time.Time), make(map[string]string)
	for reason, err := range found {
		since[reason] = time.Now()
		if before, known := r.since[reason]; known {
			since[reason] = before
		}
		if time.Since(since[reason]) >= eventDelay(reason) {
			lasting[reason] = err.Error()
		}
	}
	r.since = since
	for _, reason := range r.faults.Fresh(lasting) {
		r.send(events.Notice{Reason: reason, Note: lasting[reason]})
	}
}

// eventDelay returns how long a fault lasts before an event reports it. An
// actuator that is replaced is away for a while, and a conflicting write of
// slices is retried.
func eventDelay(reason string) time.Duration {
	if slices.Contains([]string{reasonActuator, reasonSlices}, reason) {
		return grace
	}
	return 0
}

// remindOfPartitions reports claims with an invalid partition.
func (r *reporter) remindOfPartitions(invalid map[string]string) {
	fresh := r.partitions.FreshTexts(invalid)
	if len(fresh) == 0 {
		return
	}
	r.log.Warn("claims have an invalid cpuset partition, other containers may run on their CPUs", zap.Strings("claims", fresh))
	r.send(events.Notice{
		Reason: health.ReasonPartition,
		Note: "claims have an invalid cpuset partition, other containers may run on their CPUs: " + events.Few(fresh) +
			" (nri-actuator tries again; look for a CPU that went offline," +
			" and for another program that writes cpuset.cpus.exclusive or cpuset.cpus.partition)",
	})
}

// reasonOverwritten is the reason of the event about memory values.
const reasonOverwritten = "MemoryValuesOverwritten"

// remindOfDrift reports the cgroup files that another program wrote over.
func (r *reporter) remindOfDrift(a announced) {
	places := driftByFile(a)
	r.metrics.Overwritten(len(places))
	var fresh []string
	for _, place := range r.places.Fresh(places) {
		fresh = append(fresh, fmt.Sprintf("%s = %.30q", place, places[place]))
	}
	if len(fresh) == 0 {
		return
	}
	r.log.Warn("drift in memory values of pods or levels, nri-actuator has repaired it", zap.Strings("written", fresh))
	r.send(events.Notice{Reason: reasonOverwritten, Note: "another program wrote over memory values of this driver: " + events.Few(fresh) +
		" (nri-actuator has repaired them): " + health.WhoWrites})
}

// driftByFile returns the cgroup files with drift, with the values of the other
// program.
func driftByFile(a announced) map[string]string {
	out := make(map[string]string)
	for cgroup, files := range a.overwritten {
		dir := "pod " + cgroup
		if slices.Contains([]string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}, cgroup) {
			dir = health.LevelDir(cmp.Or(a.kubepods, "kubepods"), cgroup)
		}
		for file, value := range files {
			out[fmt.Sprintf("%.200s %.60s", dir, file)] = value
		}
	}
	return out
}

// text returns an error's text, empty for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
