// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/atomicfile"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/protection"
)

// protected checks whether claims have the memory protection of their
// decisions. It reads the announcement and the cgroups.
type protected struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	send    func(events.Notice)
	cdiDir  string
	node    protection.Node
	// generation is the last one that the actuator has applied. behind is the
	// time since which the node file has a later one; zero if it has none.
	generation uint64
	behind     time.Time
	// places are the cgroup files that another program wrote over.
	places   reminder
	findings map[contract.Key]protection.Finding
}

func newProtected(o Options, send func(events.Notice)) *protected {
	p := &protected{log: o.Log, metrics: o.Metrics, send: send, cdiDir: o.Config.CDIDir}
	p.node = protection.Node{
		Cgroups: os.DirFS(filepath.Join(o.Config.SysfsRoot, "fs", "cgroup")), Owner: o.Config.MemoryQoS.Owner,
		PageSize: o.PageSize, Pending: p.pending,
	}
	p.metrics.Protection(nil)
	return p
}

// protect compares claims with cgroups and sets the claims' status.
func (d *Daemon) protect() {
	changed, err := d.protection.check(d.claims)
	if err != nil {
		d.o.Log.Error("memory protection of claims not checked", zap.Error(err))
	}
	if changed {
		d.o.Log.Debug("memory protection of claims", zap.Any("findings", slices.Collect(maps.Values(d.protection.findings))))
	}
	d.statuses.Set(d.claims, claimstatus.Report{Health: d.health, Protection: d.protection.findings})
}

func (p *protected) check(claims []contract.ClaimRecord) (changed bool, err error) {
	p.node.Before = p.findings
	now, err := protection.Check(p.node, claims)
	if err != nil {
		return false, err
	}
	changed = !maps.Equal(now, p.findings)
	p.findings = now
	effective := make(map[metav1.ConditionStatus]int)
	for _, f := range now {
		effective[f.Status]++
	}
	p.metrics.Protection(effective)
	return changed, nil
}

// unsettled reports whether a finding may improve without a change in the CDI
// directory.
func (p *protected) unsettled() bool {
	for _, f := range p.findings {
		if f.Status != metav1.ConditionTrue {
			return true
		}
	}
	return false
}

// grace is how long an actuator may be behind without any progress. The
// replacement of an actuator takes less; after that, missing values are a fault.
const grace = time.Minute

// pending reports whether the actuator has yet to apply the node file and is
// within its grace.
func (p *protected) pending() bool {
	data, err := atomicfile.Read(p.cdiDir, contract.NodeFile, contract.MaxFileSize)
	if err != nil {
		return false
	}
	state, err := contract.DecodeNode(data)
	if err != nil || state.Generation <= p.generation {
		p.behind = time.Time{}
		return false
	}
	if p.behind.IsZero() {
		p.behind = time.Now()
	}
	return time.Since(p.behind) < grace
}

// onAnnouncement stores an announcement, the zero value if the actuator is not running.
func (p *protected) onAnnouncement(a contract.Announcement) {
	if a.V != "" && a.Generation != p.generation {
		p.generation, p.behind = a.Generation, time.Time{}
	}
	if a.Kubepods != "" {
		p.node.Kubepods = a.Kubepods
	}
	p.node.Overwritten = a.Overwritten
	places := p.list(a.Overwritten)
	p.metrics.Overwritten(len(places))
	var fresh []string
	for _, place := range p.places.fresh(places) {
		fresh = append(fresh, fmt.Sprintf("%s = %.30q", place, places[place]))
	}
	if len(fresh) == 0 {
		return
	}
	p.log.Warn("another program writes memory values of this driver's cgroups, nri-actuator puts them right", zap.Strings("written", fresh))
	p.send(events.Notice{Reason: reasonOverwritten, Note: "another program wrote over memory values of this driver: " + few(fresh) +
		" (nri-actuator has put them right): " + protection.WhoWrites})
}

// reasonOverwritten is the reason of the event.
const reasonOverwritten = "MemoryValuesOverwritten"

// list returns the cgroup files that were written over, with their values.
func (p *protected) list(overwritten map[string]contract.Files) map[string]string {
	out := make(map[string]string)
	for cgroup, files := range overwritten {
		dir := "pod " + cgroup
		if slices.Contains([]string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}, cgroup) {
			dir = protection.LevelDir(cmp.Or(p.node.Kubepods, "kubepods"), cgroup)
		}
		for file, value := range files {
			out[fmt.Sprintf("%.200s %.60s", dir, file)] = value
		}
	}
	return out
}
