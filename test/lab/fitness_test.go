// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// An unfit node does not stop the update of other nodes: the frontend is ready. It
// reports the fault by taint, metric and event, and takes no new claims. Prepared
// claims are kept and can be released.
func TestKubeletGetsAnotherPolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []struct{ file, none, static, reason string }{
		{"cpu_manager_state", "none", "static", `cpuManagerPolicy "static"`},
		{"memory_manager_state", "None", "Static", `memoryManagerPolicy "Static"`},
	} {
		t.Run(policy.file, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Configure: often})
			held := podWith(n, "held", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
			start(t, n, held)
			late := podWith(n, "late", lab.Request{Zone: "numa-1", Capacity: cpu("1")})
			require.True(t, n.Allocate(late))

			n.SetKubeletPolicy(policy.file, policy.static)
			n.Taints("dra.cpumem/node")
			require.Equal(t, "unfit", n.API.Devices()["numa-1"].Taints[0].Value)
			n.WaitMetric(1, "cpumem_frontend_unfit", "reason=NodeUnfit")
			require.Contains(t, n.WaitEvents("NodeUnfit", 1)[0], policy.reason)
			require.NoError(t, n.Frontend().Ready(), "a rollout goes on")
			require.ErrorContains(t, n.Prepare(late), policy.reason)
			n.RestartKubelet()
			require.NoError(t, n.Prepare(held), "a prepared claim has its answer")
			require.NoError(t, n.Remove(held))

			// The next instance starts on an unfit node too.
			n.RestartFrontend()
			n.Taints("dra.cpumem/node")
			require.NoError(t, n.Frontend().Ready())
			require.Error(t, n.Prepare(late))
			n.SetKubeletPolicy(policy.file, policy.none)
			n.Ready()
			n.WaitMetric(0, "cpumem_frontend_unfit", "reason=NodeUnfit")
			startAllocated(t, n, late)
		})
	}
}

// A missing actuator does not stop the update of other nodes either.
func TestReadyWithoutClaims(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	n.StopActuator(true)
	n.WaitMetric(1, "cpumem_frontend_unfit", "reason=ActuatorUnavailable")
	n.NotReady()
	require.NoError(t, n.Frontend().Ready())
	n.RestartFrontend()
	n.WaitMetric(1, "cpumem_frontend_unfit", "reason=ActuatorUnavailable")
	require.NoError(t, n.Frontend().Ready())
	n.StartActuator()
	n.Ready()
	n.WaitMetric(0, "cpumem_frontend_unfit", "reason=ActuatorUnavailable")
}

// A failed write of slices is reported: the scheduler allocates claims from outdated
// slices meanwhile.
func TestSlicesNotWritten(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Configure: often})
	n.WaitMetric(0, "cpumem_frontend_slices_outdated")
	n.WaitMetric(0, "cpumem_frontend_slice_write_failures_total")
	allow := n.API.RefuseSlices()
	n.StopActuator(true)
	n.WaitMetric(1, "cpumem_frontend_slices_outdated")
	require.NoError(t, n.Frontend().Ready())
	allow()
	n.Taints("dra.cpumem/actuator")
	n.WaitMetric(0, "cpumem_frontend_slices_outdated")
	n.StartActuator()
	n.Ready()
}
