// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/metrics"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const claimUID = "4f1c2a7e-0b3d-4c5e-8f60-718293a4b5c6"

// A lost partition is reported from its announcement on: in the claim's status,
// in the device's health and as an event.
func TestInvalidPartition(t *testing.T) {
	synctest.Test(t, testInvalidPartition)
}

func testInvalidPartition(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry)
	require.NoError(t, err)
	o := options(t)
	o.Metrics = m
	object := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pinned", UID: claimUID}}
	object.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "zone", Driver: "dra.cpumem", Pool: "node", Device: "numa-0"}},
	}}
	client := fake.NewClientset(object)
	var n sent
	machine, err := o.Config.Divide(topologytest.T2().Machine())
	require.NoError(t, err)
	first := observation{machine: machine.Machine, divided: machine, actuatorFault: errNotChecked}
	first.claims = []contract.ClaimRecord{{Namespace: "ns", Name: "pinned", UID: claimUID, Results: []contract.ResultRecord{
		{Request: "zone", Pool: "node", Device: "numa-0", Decision: contract.Decision{CPUs: contracttest.CPUs("0"),
			Partition: contract.PartitionRoot}},
	}}}
	d := &Daemon{o: o, status: newStatus(first), reports: newReporter(o, n.send), published: newSliceMonitor(o),
		actuator: actuator{contract.NewAnnouncementReader(o.Config.CDIDir)},
		statuses: claimstatus.New(claimstatus.Options{
			Log: zap.NewNop(), Client: client, Driver: "dra.cpumem", SlicePool: "node", Written: func(error) {},
		})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.statuses.Run(ctx) }()
	defer func() { cancel(); <-done }()

	// begin starts an actuator. Closing the file of its announcement ends the actuator.
	begin := func(connected bool, invalid map[string]string) *os.File {
		return announce(t, o.Config.CDIDir, contract.Announcement{
			V: contract.Version, Versions: []string{contract.Version}, Connected: connected, InvalidPartitions: invalid,
		})
	}
	lostEvents := func() int {
		return len(slices.DeleteFunc(n.all(), func(reason string) bool { return reason != health.ReasonPartition }))
	}
	requireLost := func(lost bool, events int) {
		t.Helper()
		now, _ := d.status.get()
		d.conclude(d.observeActuator(t.Context(), now.observation))
		time.Sleep(time.Minute) // the longest delay of a status write
		synctest.Wait()
		c, err := client.ResourceV1().ResourceClaims("ns").Get(t.Context(), "pinned", metav1.GetOptions{})
		require.NoError(t, err)
		state, _ := d.status.get()
		if len(state.claims) > 0 && (lost || len(c.Status.Devices) > 0) {
			require.Equal(t, lost, meta.IsStatusConditionFalse(c.Status.Devices[0].Conditions, claimstatus.ConditionReady))
		}
		finding, found := state.health.Results[contract.Key{ClaimUID: claimUID}]
		require.Equal(t, lost, found)
		if lost {
			require.Equal(t, health.ReasonPartition, finding.Reason)
			require.Contains(t, finding.Message, "other containers may run on CPUs 0 of a claim")
			require.Equal(t, map[string]string{"numa-0": finding.Message}, state.health.Devices)
		} else {
			require.Empty(t, state.health.Devices)
		}
		require.Equal(t, events, lostEvents())
		families, err := registry.Gather()
		require.NoError(t, err)
		metric := -1.0
		for _, f := range families {
			if f.GetName() == "cpumem_frontend_invalid_partitions" {
				metric = f.Metric[0].Gauge.GetValue()
			}
		}
		require.Equal(t, map[bool]float64{true: 1, false: 0}[lost], metric)
	}
	lost := map[string]string{claimUID: "Cpu list in cpuset.cpus not exclusive", "another": "x"}
	f := begin(true, nil)
	requireLost(false, 0)
	require.NoError(t, f.Close())
	f = begin(true, lost)
	requireLost(true, 1)
	requireLost(true, 1)
	require.NoError(t, f.Close())
	requireLost(true, 1) // an actuator that is away has repaired nothing
	f = begin(false, nil)
	requireLost(true, 1)
	require.NoError(t, f.Close())
	f = begin(true, lost)
	requireLost(true, 1)
	require.NoError(t, f.Close())
	f = begin(true, nil)
	requireLost(false, 1)
	require.NoError(t, f.Close())
	f = begin(true, lost)
	requireLost(true, 2)

	// A claim's findings go when the claim goes.
	now, _ := d.status.get()
	now.claims = nil
	d.conclude(now.observation)
	requireLost(false, 2)
	require.NoError(t, f.Close())
}
