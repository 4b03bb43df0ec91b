// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// zoneCollector gives each scrape the zones of one moment. Zones come and go with the
// configuration and the machine.
type zoneCollector struct {
	capacity, claimed, free, cores, l3s, coresOfL3 *prometheus.Desc

	mu   sync.Mutex
	uses []zones.Use
}

func newZoneCollector() *zoneCollector {
	zone := []string{"zone"}
	amount := []string{"zone", "resource"}
	return &zoneCollector{
		capacity: prometheus.NewDesc("cpumem_frontend_zone_capacity",
			"Published capacity of the zone, in CPUs or bytes, by resource: cpu, memory, hugepages_2Mi, ...", amount, nil),
		claimed: prometheus.NewDesc("cpumem_frontend_zone_claimed",
			"What prepared claims hold of the capacity, in CPUs or bytes.", amount, nil),
		free: prometheus.NewDesc("cpumem_frontend_zone_free",
			"Capacity that no prepared claim holds, in CPUs or bytes.", amount, nil),
		cores: prometheus.NewDesc("cpumem_frontend_zone_free_cores",
			"Whole cores of the zone that claims can still get.", zone, nil),
		l3s: prometheus.NewDesc("cpumem_frontend_zone_free_l3s",
			"L3 caches of the zone of which no claim holds a CPU.", zone, nil),
		coresOfL3: prometheus.NewDesc("cpumem_frontend_zone_largest_block_cores",
			"Largest number of whole cores in one L3 cache that claims can still get.", zone, nil),
	}
}

func (z *zoneCollector) set(uses []zones.Use) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.uses = uses
}

// Describe implements prometheus.Collector.
func (z *zoneCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{z.capacity, z.claimed, z.free, z.cores, z.l3s, z.coresOfL3} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (z *zoneCollector) Collect(out chan<- prometheus.Metric) {
	z.mu.Lock()
	uses := z.uses
	z.mu.Unlock()
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for _, use := range uses {
		for resource, a := range use.Amounts {
			gauge(z.capacity, a.Capacity, use.Zone, string(resource))
			gauge(z.claimed, a.Claimed, use.Zone, string(resource))
			gauge(z.free, max(0, a.Capacity-a.Claimed), use.Zone, string(resource))
		}
		gauge(z.cores, int64(use.Free.Cores), use.Zone)
		gauge(z.l3s, int64(use.Free.L3s), use.Zone)
		gauge(z.coresOfL3, int64(use.Free.CoresOfL3), use.Zone)
	}
}
