// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
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
	for name, want := range map[string]float64{
		"cpumem_frontend_claims": 3, "cpumem_frontend_cpus exclusive": 8, "cpumem_frontend_cpus shared": 24,
		"cpumem_frontend_actuator_ready": 0, "cpumem_frontend_blocked": 1, "cpumem_frontend_orphaned_claims": 2,
		"cpumem_frontend_unprepare_total success": 1, "cpumem_frontend_unprepare_total error": 1,
	} {
		require.Contains(t, got, name)
		require.Equal(t, want, got[name], name)
	}
	m.Node(nil, nil)
	families, err = registry.Gather()
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
