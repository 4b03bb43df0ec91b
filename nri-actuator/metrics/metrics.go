// SPDX-License-Identifier: Apache-2.0

// Package metrics has the actuator's metrics for Prometheus. Each label has a
// closed set of values, whatever a pod's author or a runtime sends.
package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
)

// Outcome is the outcome of an NRI call.
type Outcome string

// Outcomes of an NRI call.
const (
	// Noop: the container did not concern the actuator.
	Noop Outcome = "noop"
	// Success: values were returned or written.
	Success Outcome = "success"
	// Failed: an error was returned or logged.
	Failed Outcome = "failed"
)

// Metrics are the actuator's metrics.
type Metrics struct {
	calls      *prometheus.HistogramVec
	repaired   *prometheus.CounterVec
	refused    *prometheus.CounterVec
	units      *prometheus.CounterVec
	connected  prometheus.Gauge
	poolCPUs   prometheus.Gauge
	generation prometheus.Gauge
	invalid    prometheus.Gauge
	build      *prometheus.GaugeVec
}

// New registers the metrics.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cpumem_actuator_call_seconds",
			Help: "Time the actuator took for a call of the container runtime. After 2 s (the default) the runtime goes on without the answer.",
			// The runtime holds its node-wide lock during the call.
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		}, []string{"call", "outcome"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_actuator_repaired_total",
			Help: "Repairs of drift in cgroup files, by file.",
		}, []string{"file"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_actuator_refused_total",
			Help: "Containers whose claims the actuator did not obey, by reason.",
		}, []string{"reason"}),
		units: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_actuator_systemd_failures_total",
			Help: "Failed attempts to give values of cgroups to systemd, repeated attempts included, by reason.",
		}, []string{"reason"}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_actuator_connected",
			Help: "1 while the container runtime is connected and synchronised.",
		}),
		poolCPUs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_actuator_pool_cpus",
			Help: "CPUs in the shared pool as last applied.",
		}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_actuator_node_generation",
			Help: "Generation of the last node state that was applied to all cgroups.",
		}),
		invalid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_actuator_invalid_partitions",
			Help: "Claims with an invalid cpuset partition: other containers may run on their CPUs.",
		}),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_actuator_build_info", Help: "1, with the version of the program and of the contract.",
		}, []string{"version", "contract"}),
	}
	for _, c := range []prometheus.Collector{
		m.calls, m.repaired, m.refused, m.units, m.connected, m.poolCPUs, m.generation, m.invalid, m.build,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Build sets the version of the program.
func (m *Metrics) Build(version string) { m.build.WithLabelValues(version, contract.Version).Set(1) }

// Call records an NRI call that began at start.
func (m *Metrics) Call(call string, outcome Outcome, start time.Time) {
	m.calls.WithLabelValues(call, string(outcome)).Observe(time.Since(start).Seconds())
}

// Repaired counts a repair of a cgroup file. All hugepage sizes share a label.
func (m *Metrics) Repaired(file string) {
	if strings.HasPrefix(file, "hugetlb.") {
		file = "hugetlb"
	}
	m.repaired.WithLabelValues(file).Inc()
}

// InitRefused makes the counters of the reasons, at 0: Prometheus sees no increase when a
// series appears with 1.
func (m *Metrics) InitRefused(reasons ...string) {
	for _, reason := range reasons {
		m.refused.WithLabelValues(reason)
	}
}

// Refused counts a container that was refused.
func (m *Metrics) Refused(reason string) { m.refused.WithLabelValues(reason).Inc() }

// UnitFailed counts a failed attempt to give systemd the values of a unit.
func (m *Metrics) UnitFailed(reason string) { m.units.WithLabelValues(reason).Inc() }

// Connected records the state of the connection to the runtime.
func (m *Metrics) Connected(yes bool) {
	m.connected.Set(0)
	if yes {
		m.connected.Set(1)
	}
}

// InvalidPartitions records how many claims have an invalid partition.
func (m *Metrics) InvalidPartitions(n int) { m.invalid.Set(float64(n)) }

// Applied records that a node state was applied everywhere.
func (m *Metrics) Applied(generation uint64) { m.generation.Set(float64(generation)) }

// Pool records the size of the shared pool.
func (m *Metrics) Pool(cpus int) { m.poolCPUs.Set(float64(cpus)) }
