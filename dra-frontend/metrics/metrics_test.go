// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/receipt"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// What is reported reaches the metric of its name.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	m.Claims(3, 8, 24)
	m.Node(errors.New("unreadable"), errors.New("dead"))
	m.Unprepared(nil)
	m.Unprepared(errors.New("failed"))
	m.Orphaned(2)
	m.Build("v1.2.3")
	m.Generation(7)
	m.Prepared(decision.Because(decision.ReasonPods, errors.New("gone")), time.Second)
	m.Prepared(errors.New("no reason"), time.Second)
	m.Prepared(nil, time.Second)
	m.Isolation([]contract.ClaimRecord{{Results: []contract.ResultRecord{
		{Decision: contract.Decision{CPUs: contract.CPUs(1), Partition: contract.PartitionIsolated}},
		{Decision: contract.Decision{CPUs: contract.CPUs(2)}}, {Decision: contract.Decision{CPUs: contract.CPUs(3)}}, {},
	}}})
	m.Zones([]zones.Use{{Zone: "gone", Amounts: map[resourceapi.QualifiedName]zones.Amount{"cpu": {Capacity: 1}}}})
	m.Zones([]zones.Use{{
		Zone: "numa-1", Free: cpulayout.Blocks{Cores: 5, L3s: 1, CoresOfL3: 4},
		Amounts: map[resourceapi.QualifiedName]zones.Amount{"cpu": {Capacity: 8, Claimed: 3}, "memory": {Capacity: 10, Claimed: 12}},
	}})

	got := samples(t, registry)
	for name, want := range map[string]float64{
		"cpumem_frontend_claims": 3, "cpumem_frontend_cpus exclusive": 8, "cpumem_frontend_cpus shared": 24,
		"cpumem_frontend_actuator_ready": 0, "cpumem_frontend_blocked": 1, "cpumem_frontend_orphaned_claims": 2,
		"cpumem_frontend_unprepare_total success": 1, "cpumem_frontend_unprepare_total error": 1,
		"cpumem_frontend_build_info v1 v1.2.3": 1, "cpumem_frontend_node_generation": 7,
		"cpumem_frontend_prepare_failures_total pods": 1, "cpumem_frontend_prepare_failures_total other": 1,
		"cpumem_frontend_prepare_failures_total claim": 0,
		"cpumem_frontend_isolated_results none":        2, "cpumem_frontend_isolated_results isolated": 1,
		"cpumem_frontend_isolated_results partition": 0,
		"cpumem_frontend_zone_capacity cpu numa-1":   8, "cpumem_frontend_zone_claimed cpu numa-1": 3,
		"cpumem_frontend_zone_free cpu numa-1": 5, "cpumem_frontend_zone_free memory numa-1": 0,
		"cpumem_frontend_zone_free_cores numa-1": 5, "cpumem_frontend_zone_free_l3s numa-1": 1,
		"cpumem_frontend_zone_largest_block_cores numa-1": 4,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	require.NotContains(t, got, "cpumem_frontend_zone_capacity cpu gone", "a zone that is gone has no series")
	m.Node(nil, nil)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		switch family.GetName() {
		case "cpumem_frontend_actuator_ready":
			require.Equal(t, 1.0, family.GetMetric()[0].GetGauge().GetValue())
		case "cpumem_frontend_blocked":
			require.Zero(t, family.GetMetric()[0].GetGauge().GetValue())
		}
	}
}

// Disturbances are counted from the second measurement of a result, and never backwards.
func TestDisturbances(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	a, b := contract.Key{ClaimUID: "a"}, contract.Key{ClaimUID: "b"}
	of := func(interrupts, times uint64, waited time.Duration, losses int) receipt.Receipt {
		return receipt.Receipt{
			Interrupts: interrupts, Throttling: receipt.Throttling{Times: times}, Waited: waited, PartitionLosses: losses,
		}
	}
	var last map[contract.Key]receipt.Receipt
	for _, now := range []map[contract.Key]receipt.Receipt{
		{a: of(1000, 1000, time.Hour, 1000)},
		{a: of(1003, 1001, time.Hour+time.Second, 1001), b: of(5, 5, time.Hour, 5)},
		{b: of(6, 2, time.Hour, 5)},
	} {
		m.Disturbances(last, now, map[contract.Key]health.Quiet{
			a: {Measured: health.Condition{Status: metav1.ConditionTrue}}, b: {Measured: health.Condition{Status: metav1.ConditionFalse}}, {}: {},
		})
		last = now
	}
	got := samples(t, registry)
	for name, want := range map[string]float64{
		"cpumem_frontend_disturbances_total interrupt": 4, "cpumem_frontend_disturbances_total partition": 1,
		"cpumem_frontend_disturbances_total throttle": 1, "cpumem_frontend_run_delay_seconds_total": 1,
		"cpumem_frontend_quiet_results True": 1, "cpumem_frontend_quiet_results False": 1,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
}

// samples returns the gauges and counters, by name and the values of labels.
func samples(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	got := make(map[string]float64)
	for _, family := range families {
		for _, sample := range family.GetMetric() {
			name := family.GetName()
			for _, label := range sample.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
		}
	}
	return got
}
