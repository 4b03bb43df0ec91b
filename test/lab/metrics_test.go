// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// The metrics of alerts and of the dashboard follow what happens on the node. Package metrics has their form.
func TestFrontendsMetrics(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Configure: func(c *config.Config) {
		c.Exclusivity = config.ExclusivityPool
	}})
	n.WaitMetric(1, "cpumem_frontend_active")
	n.WaitMetric(1, "cpumem_frontend_actuator_ready")
	n.WaitMetric(0, "cpumem_frontend_blocked")
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
	start(t, n, p)
	n.WaitMetric(1, "cpumem_frontend_claims")
	n.WaitMetric(2, "cpumem_frontend_cpus", "state=exclusive")
	n.WaitMetric(6, "cpumem_frontend_cpus", "state=shared")
	n.WaitMetric(2, "cpumem_frontend_zone_claimed", "resource=cpu", "zone=numa-1")
	n.WaitMetric(1, "cpumem_frontend_isolated_results", "isolation=none")
	n.WaitMetric(float64(n.State().Generation), "cpumem_frontend_node_generation")

	refused := n.Pod("refused", lab.Burstable, lab.ContainerSpec{
		Name: "main", MemoryLimit: "1Mi", Claims: []string{n.Claim("refused", lab.Request{Capacity: map[string]string{"memory": "2Mi"}})},
	})
	require.True(t, n.Allocate(refused))
	require.Error(t, n.Prepare(refused))
	n.WaitMetric(1, "cpumem_frontend_prepare_failures_total", "reason=claim")
	n.WaitMetric(0, "cpumem_frontend_prepare_failures_total", "reason=files")
	require.NoError(t, n.Remove(refused))

	require.True(t, n.Reconfigure(func(c *config.Config) { c.GroupBy = "machine" }))
	n.WaitMetric(1, "cpumem_frontend_displaced_claims")
	require.NoError(t, n.Remove(p))
	n.WaitMetric(1, "cpumem_frontend_unprepare_total", "result=success")
	n.WaitMetric(0, "cpumem_frontend_claims")
	n.WaitMetric(0, "cpumem_frontend_displaced_claims")
	n.Check()
}
