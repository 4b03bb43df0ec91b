// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"maps"

	"go.uber.org/zap"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/events"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// partitions reports claims that have lost their cpuset partition. The actuator
// announces them.
type partitions struct {
	log     *zap.Logger
	metrics *metrics.Metrics
	send    func(events.Notice)
	// invalid has the kernel's reasons by claim UID.
	invalid map[string]string
	lost    reminder
}

func newPartitions(o Options, send func(events.Notice)) *partitions {
	return &partitions{log: o.Log, metrics: o.Metrics, send: send}
}

// onAnnouncement stores the lost partitions of an announcement, and reports whether they
// differ from the last ones. While the actuator is away its last announcement
// counts.
func (p *partitions) onAnnouncement(a contract.Announcement) bool {
	news := !maps.Equal(p.invalid, a.InvalidPartitions)
	p.invalid = a.InvalidPartitions
	return news
}

// report reports which of the claims have lost their partition.
func (p *partitions) report(claims []contract.ClaimRecord) {
	now := make(map[string]string)
	for _, c := range claims {
		if reason, lost := p.invalid[c.UID]; lost {
			now[c.Namespace+"/"+c.Name] = fmt.Sprintf("claim %s/%s (%.80q)", c.Namespace, c.Name, reason)
		}
	}
	p.metrics.InvalidPartitions(len(now))
	var fresh []string
	for _, claim := range p.lost.fresh(now) {
		fresh = append(fresh, now[claim])
	}
	if len(fresh) == 0 {
		return
	}
	p.log.Warn("the kernel does not grant cpuset partitions any more, others may run on their CPUs", zap.Strings("claims", fresh))
	p.send(events.Notice{
		Reason: health.ReasonPartition,
		Note: "the kernel does not grant cpuset partitions any more, others may run on their CPUs: " + few(fresh) +
			" (nri-actuator tries again; look for a CPU that went offline," +
			" and for who else writes cpuset.cpus.exclusive or cpuset.cpus.partition)",
	})
}
