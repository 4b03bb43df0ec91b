// SPDX-License-Identifier: Apache-2.0

package metrics_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/metrics"
)

// The page sizes in the names of files come from the claims. All of them have one
// series, so that the number of series does not grow with claims.
func TestPageSizesShareASeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	for i := range 32 {
		m.Repaired(fmt.Sprintf("hugetlb.%dKB.rsvd.max", 1<<i))
	}
	m.Repaired("memory.min")
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "cpumem_actuator_repaired_total" {
			for _, sample := range family.GetMetric() {
				got[sample.GetLabel()[0].GetValue()] = sample.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, map[string]float64{"hugetlb": 32, "memory.min": 1}, got)
}
