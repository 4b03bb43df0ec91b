// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	resourceapi "k8s.io/api/resource/v1"
	metadata "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/claimstatus"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// often makes the frontend look at the machine each second.
func often(c *config.Config) { c.RefreshInterval.Duration = time.Second }

// The claim's status has the decision, and a restart writes no status (A08). The
// order of the parameters differs from the server's encoding.
func TestClaimStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	c := start(t, n, podWith(n, "p", lab.Request{
		Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"},
		Parameters: `"cpu":{"placement":"packed"}`,
	}))[0]
	s := n.WaitStatus("p", "True", "Prepared")
	result := n.API.ReadClaim("p").Status.Allocation.Devices.Results[0]
	require.Equal(t, []string{"dra.cpumem", lab.NodeName, "numa-1", string(*result.ShareID)},
		[]string{s.Driver, s.Pool, s.Device, *s.ShareID})
	var data claimstatus.Data
	require.NoError(t, json.Unmarshal(s.Data.Raw, &data))
	require.Equal(t, c.CPUs(), data.CPUs.String())
	require.Equal(t, []any{"r", "1"}, []any{data.Request, data.Mems.String()})
	require.Equal(t, int64(1<<30), int64(data.Memory.Min))
	require.Equal(t, int64(4<<20), int64(data.Hugepages["2Mi"]))

	n.WaitProtection("p", "True", "Protected")
	writes := n.API.StatusWrites()
	n.RestartFrontend()
	n.Ready()
	start(t, n, podWith(n, "q", lab.Request{Capacity: cpu("1")}))
	n.WaitStatus("q", "True", "Prepared")
	n.WaitMetric(1, "cpumem_frontend_claim_status_writes_total", "result=success")
	require.Equal(t, writes+1, n.API.StatusWrites())
	n.Check()
}

// A06: CPUs go offline and a page pool shrinks under live claims. The claims are
// kept; kubelet and the claims' status get the problem.
func TestMachineShrinks(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Configure: often})
	cpus := start(t, n, podWith(n, "cpus", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))[0]
	start(t, n, podWith(n, "pages", lab.Request{Zone: "numa-0", Capacity: map[string]string{"hugepages_2Mi": "1Gi"}}))
	n.WaitStatus("cpus", "True", "Prepared")
	n.WaitStatus("pages", "True", "Prepared")
	report := n.Health()
	require.Equal(t, map[string]string{"numa-0": "", "numa-1": ""}, report())

	smaller := topologytest.T2()
	for i := range smaller.CPUs {
		smaller.CPUs[i].Offline = smaller.CPUs[i].ID == 6
	}
	smaller.Nodes[0].Hugepages = map[int64]int64{2 * topologytest.Mi: 100}
	n.ChangeMachine(smaller)
	want := map[string]string{
		"numa-0": "UNHEALTHY: NUMA nodes 0 have 209715200 bytes of hugepages_2Mi, " +
			"less than the 1073741824 bytes held by 1 claim",
		"numa-1": "UNHEALTHY: CPUs 6 of a claim's CPUs 2,6 are offline",
	}
	waitReport(t, report, want)
	lost := n.WaitStatus("cpus", "False", "CPUsOffline")
	require.Equal(t, "CPUs 6 of a claim's CPUs 2,6 are offline", lost.Conditions[0].Message)
	n.WaitStatus("pages", "False", "HugepagesShort")
	n.WaitMetric(1, "cpumem_frontend_unhealthy_devices", "reason=CPUsOffline")
	n.WaitMetric(1, "cpumem_frontend_unhealthy_devices", "reason=HugepagesShort")
	require.Equal(t, "2,6", cpus.CPUs(), "the claim is kept")

	n.ChangeMachine(topologytest.T2())
	waitReport(t, report, map[string]string{"numa-0": "", "numa-1": ""})
	n.WaitStatus("cpus", "True", "Prepared")
	n.WaitStatus("pages", "True", "Prepared")
	n.WaitMetric(0, "cpumem_frontend_unhealthy_devices", "reason=CPUsOffline")
	n.WaitMetric(0, "cpumem_frontend_unhealthy_devices", "reason=HugepagesShort")
	n.Check()
}

// waitReport reads reports until one equals want. Otherwise the stream ends with an
// error.
func waitReport(t *testing.T, next func() map[string]string, want map[string]string) {
	t.Helper()
	for {
		got := next()
		if len(got) != len(want) {
			continue
		}
		same := true
		for device, problem := range want {
			same = same && got[device] == problem
		}
		if same {
			return
		}
	}
}

// On a server without the optional features the driver works. Each missing feature
// is logged once, although slices are written several times.
func TestServerWithoutFeatures(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Log: zap.New(core), Configure: func(c *config.Config) { c.NodeAllocatable = true },
		API: func(a *lab.API) {
			a.DropStatus()
			a.Drop(func(d *resourceapi.Device) { d.Taints, d.NodeAllocatableResources = nil, nil })
		},
	})
	n.WaitMetric(1, "cpumem_frontend_node_allocatable", "state=dropped")
	for range 3 {
		n.StopActuator(true)
		n.NotReady()
		n.StartActuator()
		n.Ready()
	}
	c := start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))[0]
	require.Equal(t, "2,6", c.CPUs())
	n.WaitMetric(1, "cpumem_frontend_claim_status_writes_total", "result=success")
	start(t, n, podWith(n, "q", lab.Request{Capacity: cpu("1")}))
	n.WaitMetric(2, "cpumem_frontend_claim_status_writes_total", "result=success")
	n.WaitMetric(1, "cpumem_frontend_node_allocatable", "state=dropped")
	n.Check()
	for snippet, times := range map[string]int{
		"claims are not counted": 1,
		"keeps no status":        1,
	} {
		require.Equal(t, times, logged.FilterMessageSnippet(snippet).Len(), snippet)
	}
	// The dropped fields change when the taint comes and goes.
	dropped := logged.FilterMessageSnippet("dropped fields").All()
	require.NotEmpty(t, dropped)
	require.LessOrEqual(t, len(dropped), 2)
}

// On a server with the feature gate, the frontend finds that the mapping is kept.
func TestNodeAllocatable(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Configure: func(c *config.Config) { c.NodeAllocatable = true },
	})
	for range 2 {
		n.WaitMetric(1, "cpumem_frontend_node_allocatable", "state=active")
		n.WaitMetric(0, "cpumem_frontend_node_allocatable", "state=pending")
		require.Len(t, n.API.Devices()["numa-1"].NodeAllocatableResources, 4)
		n.RestartFrontend()
		n.Ready()
	}
	start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")}))
}

// metadataOf reads the device metadata that is mounted into a container.
func metadataOf(t *testing.T, c *lab.Container) metadata.Device {
	t.Helper()
	file, err := os.Open(c.Spec.Mounts[len(c.Spec.Mounts)-1].Source)
	require.NoError(t, err)
	defer file.Close()
	var m metadata.DeviceMetadata
	require.NoError(t, json.NewDecoder(file).Decode(&m))
	require.Equal(t, "metadata.resource.k8s.io/v1beta1", m.APIVersion)
	return m.Requests[0].Devices[0]
}

// A container gets its device metadata, which is removed with the claim. The removal
// works too if metadata was switched off meanwhile.
func TestDeviceMetadata(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		n := lab.NewNode(t, topologytest.T2(), lab.Options{
			Programs: programs, Configure: func(c *config.Config) { c.DeviceMetadata = true },
		})
		p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
		c := start(t, n, p)[0]
		require.Equal(t, "2,6", c.CPUs())
		require.Len(t, n.MetadataFiles(), 1)
		mount := c.Spec.Mounts[len(c.Spec.Mounts)-1]
		require.Equal(t, "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/p/r/dra.cpumem-metadata.json", mount.Destination)
		require.Contains(t, mount.Options, "ro")
		device := metadataOf(t, c)
		require.Equal(t, []string{"dra.cpumem", lab.NodeName, "numa-1"}, []string{device.Driver, device.Pool, device.Name})
		require.Equal(t, "2,6", *device.Attributes["cpuset"].StringValue)
		require.Equal(t, "1", *device.Attributes["mems"].StringValue)
		require.Equal(t, int64(1<<30), *device.Attributes["memory"].IntValue)

		if off {
			n.Reconfigure(func(c *config.Config) { c.DeviceMetadata = false })
			n.Ready()
			require.Len(t, n.MetadataFiles(), 1, "a running pod keeps it")
			again, err := n.CreateContainer(p, "main")
			require.NoError(t, err)
			require.NoError(t, again.Start())
		}
		require.NoError(t, n.Remove(p))
		require.Empty(t, n.MetadataFiles())
		require.NoDirExists(t, filepath.Dir(filepath.Dir(mount.Source)))
		n.Check()
	}
}

// Kubelet may watch the health late, twice, or never.
func TestHealthIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	healthy := map[string]string{"numa-0": "", "numa-1": ""}
	start(t, n, podWith(n, "p", lab.Request{Capacity: cpu("1")}))
	one, two := n.Health(), n.Health()
	require.Equal(t, healthy, one())
	require.Equal(t, healthy, two())
	n.StopActuator(true)
	n.NotReady()
	n.StartActuator()
	n.Ready()
	waitReport(t, two, healthy)
	require.NoError(t, n.Remove(n.Pod("none", lab.Burstable, lab.ContainerSpec{Name: "main"})))
	n.Check()
}
