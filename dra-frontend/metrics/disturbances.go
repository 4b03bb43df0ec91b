// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
)

// Kinds of disturbances.
const (
	disturbedByInterrupt = "interrupt"
	disturbedByThrottle  = "throttle"
	disturbedByPartition = "partition"
)

// disturbances counts what was measured on the CPUs of claims that ask for quiet CPUs,
// summed over the node.
type disturbances struct {
	count  *prometheus.CounterVec
	waited prometheus.Counter
	quiet  *prometheus.GaugeVec
}

func newDisturbances() disturbances {
	d := disturbances{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cpumem_frontend_disturbances_total",
			Help: "What has disturbed claims that ask for quiet CPUs, by kind: interrupt (of a device, on their CPUs), " +
				"throttle (a CPU limit stopped a container) or partition (it was lost).",
		}, []string{"kind"}),
		waited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cpumem_frontend_run_delay_seconds_total",
			Help: "Time that threads have waited for one of the CPUs of claims that ask for quiet CPUs.",
		}),
		quiet: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cpumem_frontend_quiet_results",
			Help: "Results of claims that ask for quiet CPUs, by whether nothing was measured against it: True or False.",
		}, []string{"quiet"}),
	}
	for _, kind := range []string{disturbedByInterrupt, disturbedByThrottle, disturbedByPartition} {
		d.count.WithLabelValues(kind)
	}
	return d
}

func (d disturbances) collectors() []prometheus.Collector {
	return []prometheus.Collector{d.count, d.waited, d.quiet}
}

// Disturbances adds what has grown between two measurements of the results, and counts
// results by their condition. A result counts from its second measurement: the first may be
// of an earlier instance.
func (m *Metrics) Disturbances(before, now map[contract.Key]receipt.Receipt, conditions map[contract.Key]health.Quiet) {
	d := m.disturbances
	for key, r := range now {
		last, known := before[key]
		if !known {
			continue
		}
		add := func(kind string, grown float64) { d.count.WithLabelValues(kind).Add(max(0, grown)) }
		add(disturbedByInterrupt, float64(r.Interrupts)-float64(last.Interrupts))
		add(disturbedByThrottle, float64(r.Throttling.Times)-float64(last.Throttling.Times))
		add(disturbedByPartition, float64(r.PartitionLosses-last.PartitionLosses))
		d.waited.Add(max(0, (r.Waited - last.Waited).Seconds()))
	}
	count := make(map[metav1.ConditionStatus]int)
	for _, q := range conditions {
		count[q.Measured.Status]++
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
		d.quiet.WithLabelValues(string(status)).Set(float64(count[status]))
	}
}
