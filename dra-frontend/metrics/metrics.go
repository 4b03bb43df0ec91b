// SPDX-License-Identifier: Apache-2.0

// Package metrics has the frontend's Prometheus metrics. The number of series
// does not grow with claims or pods.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// Metrics has the frontend's collectors.
type Metrics struct {
	prepare     *prometheus.HistogramVec
	unprepare   *prometheus.CounterVec
	claims      prometheus.Gauge
	cpus        *prometheus.GaugeVec
	blocked     prometheus.Gauge
	actuator    prometheus.Gauge
	active      prometheus.Gauge
	unfit       *prometheus.GaugeVec
	unwritten   prometheus.Counter
	outdated    prometheus.Gauge
	displaced   prometheus.Gauge
	unhealthy   *prometheus.GaugeVec
	status      *prometheus.CounterVec
	accounted   *prometheus.GaugeVec
	overwritten prometheus.Gauge
	partitions  prometheus.Gauge
	orphaned    prometheus.Gauge
	kubelet     *prometheus.GaugeVec
	protection  *prometheus.GaugeVec
	failures    *prometheus.CounterVec
	isolation   *prometheus.GaugeVec
	generation  prometheus.Gauge
	build       *prometheus.GaugeVec
	zones       *zoneCollector

	disturbances disturbances
}

// New registers the metrics.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		prepare: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cpumem_frontend_prepare_seconds", Help: "Time of the call that prepared the claim, by result; one value for each claim.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
		unprepare: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_frontend_unprepare_total", Help: "Claims unprepared, by result.",
		}, []string{"result"}),
		claims: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_claims", Help: "Claims prepared on this node.",
		}),
		cpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_cpus", Help: "CPUs by state: exclusive (held by claims, offline ones included) or shared.",
		}, []string{"state"}),
		blocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_blocked",
			Help: "1 while the node takes no new claims because its claim files cannot be read, or its node file cannot be written.",
		}),
		actuator: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_actuator_ready",
			Help: "1 while nri-actuator is alive, connected to the runtime, and has a contract version in common with this frontend.",
		}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_active", Help: "1 while this instance serves the node, 0 while it waits for another one.",
		}),
		unfit: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_unfit", Help: "1 for each reason why the node takes no new claims.",
		}, []string{"reason"}),
		unwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cpumem_frontend_slice_write_failures_total", Help: "Writes of ResourceSlices that failed.",
		}),
		outdated: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_slices_outdated", Help: "1 while the node's ResourceSlices are outdated because writing them failed.",
		}),
		displaced: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_displaced_claims",
			Help: "Claims on devices that the configuration does not offer; the published capacities leave out what these claims hold.",
		}),
		unhealthy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_unhealthy_devices",
			Help: "Devices with claims that lack what they hold, by reason: CPUsOffline, CPUsTaken, MemoryShort, HugepagesShort or " +
				"PartitionInvalid.",
		}, []string{"reason"}),
		status: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_frontend_claim_status_writes_total", Help: "Writes of the status of claims, by result.",
		}, []string{"result"}),
		accounted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_node_allocatable",
			Help: "1 for the state of the node-allocatable mapping: off, pending, active, or dropped by the API server.",
		}, []string{"state"}),
		overwritten: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_memory_overwritten",
			Help: "Cgroup files of pods and their ancestors that another program has written over the driver's values within the last ten minutes.",
		}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_invalid_partitions",
			Help: "Claims with an invalid cpuset partition: other containers may run on their CPUs.",
		}),
		orphaned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_orphaned_claims", Help: "Claims that are prepared although they are deleted or not allocated to the node.",
		}),
		kubelet: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_kubelet_findings",
			Help: "1 for each finding about kubelet's configuration and the owner of memory protection, by reason.",
		}, []string{"reason"}),
		protection: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_memory_protection",
			Help: "Results of claims with memory protection, by whether it is effective: True, False or Unknown.",
		}, []string{"effective"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_frontend_prepare_failures_total",
			Help: "Claims that were not prepared, by the kind of reason. Kubelet tries again, and each try counts.",
		}, []string{"reason"}),
		isolation: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_isolated_results",
			Help: "Prepared results of claims with CPUs, by what keeps other programs off the CPUs: " +
				"none (the shared pool leaves the CPUs out), partition or isolated.",
		}, []string{"isolation"}),
		generation: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cpumem_frontend_node_generation",
			Help: "Generation of the node state as last written. While cpumem_actuator_node_generation stays behind, " +
				"nri-actuator has not applied it.",
		}),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_build_info", Help: "1, with the version of the program and of the contract.",
		}, []string{"version", "contract"}),
		zones: newZoneCollector(), disturbances: newDisturbances(),
	}
	for _, c := range append(m.disturbances.collectors(),
		m.prepare, m.unprepare, m.claims, m.cpus, m.blocked, m.actuator, m.active, m.unfit, m.unwritten, m.outdated, m.displaced,
		m.unhealthy, m.status, m.accounted, m.overwritten, m.partitions, m.orphaned, m.kubelet, m.protection,
		m.failures, m.isolation, m.generation, m.build, m.zones,
	) {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	for _, reason := range decision.Reasons() {
		m.failures.WithLabelValues(string(reason))
	}
	return m, nil
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

// Prepared counts the preparation of a claim and its duration.
func (m *Metrics) Prepared(err error, took time.Duration) {
	m.prepare.WithLabelValues(result(err)).Observe(took.Seconds())
	if err != nil {
		m.failures.WithLabelValues(string(decision.ReasonOf(err))).Inc()
	}
}

// Unprepared counts an attempt to release a claim.
func (m *Metrics) Unprepared(err error) { m.unprepare.WithLabelValues(result(err)).Inc() }

// Claims sets the number of prepared claims, claimed CPUs and shared CPUs.
func (m *Metrics) Claims(n, exclusive, shared int) {
	m.claims.Set(float64(n))
	m.cpus.WithLabelValues("exclusive").Set(float64(exclusive))
	m.cpus.WithLabelValues("shared").Set(float64(shared))
}

// Build sets the version of the program.
func (m *Metrics) Build(version string) { m.build.WithLabelValues(version, contract.Version).Set(1) }

// Generation sets the generation of the node state.
func (m *Metrics) Generation(n uint64) { m.generation.Set(float64(n)) }

// Isolation counts the results with CPUs by their isolation.
func (m *Metrics) Isolation(claims []contract.ClaimRecord) {
	isolations := map[string]string{
		"":                         parameters.IsolationNone,
		contract.PartitionRoot:     parameters.IsolationPartition,
		contract.PartitionIsolated: parameters.IsolationIsolated,
	}
	count := make(map[string]int)
	for _, c := range claims {
		for _, r := range c.Results {
			if !r.Decision.CPUs.IsEmpty() {
				count[isolations[r.Decision.Partition]]++
			}
		}
	}
	for _, isolation := range isolations {
		m.isolation.WithLabelValues(isolation).Set(float64(count[isolation]))
	}
}

// Zones sets what claims hold of each zone.
func (m *Metrics) Zones(uses []zones.Use) { m.zones.set(uses) }

// Node sets whether claim files are unreadable and whether the actuator is ready.
func (m *Metrics) Node(blocked, actuator error) {
	m.blocked.Set(gauge(blocked != nil))
	m.actuator.Set(gauge(actuator == nil))
}

// Active sets whether this instance is the active one.
func (m *Metrics) Active(on bool) { m.active.Set(gauge(on)) }

// Unfit sets whether the reason keeps the node from taking new claims.
func (m *Metrics) Unfit(reason string, on bool) { m.unfit.WithLabelValues(reason).Set(gauge(on)) }

// SliceWriteFailed counts a write of ResourceSlices that failed.
func (m *Metrics) SliceWriteFailed() { m.unwritten.Inc() }

// SlicesOutdated sets whether the slices are outdated after a failed write.
func (m *Metrics) SlicesOutdated(on bool) { m.outdated.Set(gauge(on)) }

// Displaced sets the number of claims on devices that are not offered.
func (m *Metrics) Displaced(n int) { m.displaced.Set(float64(n)) }

// Unhealthy sets the number of unhealthy devices for the reason.
func (m *Metrics) Unhealthy(reason string, n int) {
	m.unhealthy.WithLabelValues(reason).Set(float64(n))
}

// StatusWritten counts a write of a claim's status.
func (m *Metrics) StatusWritten(err error) { m.status.WithLabelValues(result(err)).Inc() }

// States of the node-allocatable mapping.
const (
	MappingOff     = "off"
	MappingPending = "pending"
	MappingActive  = "active"
	MappingDropped = "dropped"
)

// NodeAllocatable sets the state of the mapping.
func (m *Metrics) NodeAllocatable(state string) {
	for _, s := range []string{MappingOff, MappingPending, MappingActive, MappingDropped} {
		m.accounted.WithLabelValues(s).Set(gauge(s == state))
	}
}

// Overwritten sets the number of files that another program wrote over.
func (m *Metrics) Overwritten(n int) { m.overwritten.Set(float64(n)) }

// InvalidPartitions sets the number of claims with a lost partition.
func (m *Metrics) InvalidPartitions(n int) { m.partitions.Set(float64(n)) }

// Orphaned sets the number of orphans.
func (m *Metrics) Orphaned(n int) { m.orphaned.Set(float64(n)) }

// KubeletFinding sets the reason of the present finding, "" for none; all has all
// reasons.
func (m *Metrics) KubeletFinding(reason string, all []string) {
	for _, r := range all {
		m.kubelet.WithLabelValues(r).Set(gauge(r == reason))
	}
}

// Protection sets the numbers of results with memory protection by status.
func (m *Metrics) Protection(effective map[metav1.ConditionStatus]int) {
	for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		m.protection.WithLabelValues(string(s)).Set(float64(effective[s]))
	}
}

func gauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
