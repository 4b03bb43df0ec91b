// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
)

// An event reports a fault of the node at once, and each hour while the fault
// stays. Actuators are replaced and writes of slices retried, so an event
// reports these two faults only if they last. The metric has no delay.
func TestFitnessIsReported(t *testing.T) {
	wrong := errors.New("what is wrong")
	for _, tc := range []struct {
		reason string
		after  time.Duration
	}{
		{reasonNodeUnfit, 0}, {reasonBlocked, 0}, {reasonEmpty, 0}, {reasonActuator, grace}, {reasonSlices, grace},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				m, err := metrics.New(registry)
				require.NoError(t, err)
				var n sent
				f := reporter{metrics: m, send: n.send}
				pass := func(d time.Duration, found map[string]error) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
						f.remindOfFaults(found)
					}
				}
				found := map[string]error{tc.reason: wrong}
				f.remindOfFaults(found)
				if tc.reason != reasonSlices {
					require.Equal(t, 1, countOf(t, registry, 1), "the metric")
				}
				if tc.after > 0 {
					require.Empty(t, n.all())
					pass(tc.after/2, found)
					pass(time.Second, nil)
					require.Equal(t, 0, countOf(t, registry, 1))
					pass(tc.after, found)
					require.Empty(t, n.all(), "it was well in between")
				}
				pass(2*time.Second, found)
				require.Equal(t, []string{tc.reason}, n.all())
				pass(2*time.Hour+time.Minute, found)
				require.Equal(t, slices.Repeat([]string{tc.reason}, 3), n.all())
			})
		})
	}
}

// countOf counts the reasons with this value of the metric.
func countOf(t *testing.T, registry *prometheus.Registry, value float64) int {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	count := 0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "cpumem_frontend_unfit" && m.GetGauge().GetValue() == value {
				count++
			}
		}
	}
	return count
}
