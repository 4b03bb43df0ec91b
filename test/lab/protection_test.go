// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// A claim has its condition soon after its container has started: the condition does not wait for the refresh.
func TestProtectionBeforeTheRefresh(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Configure: func(c *config.Config) { c.RefreshInterval.Duration = time.Hour },
	})
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"memory": "1Gi"}})
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	n.WaitProtection("p", "Unknown", "NotStarted")
	c, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	require.NoError(t, c.Start())
	n.WaitProtection("p", "True", "Protected")
}

// A44: a claim's status has whether all ancestors protect its memory. A second
// writer is reported once, by status, metric and event, and its values are repaired.
func TestProtection(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"memory": "1Gi"}})
	require.True(t, n.Allocate(p))
	require.NoError(t, n.Prepare(p))
	n.WaitProtection("p", "Unknown", "NotStarted")
	n.WaitMetric(1, "cpumem_frontend_memory_protection", "effective=Unknown")
	c, err := n.CreateContainer(p, "main")
	require.NoError(t, err)
	require.NoError(t, c.Start())
	n.WaitProtection("p", "True", "Protected")
	n.WaitStatus("p", "True", "Prepared")
	n.WaitMetric(1, "cpumem_frontend_memory_protection", "effective=True")
	n.WaitMetric(0, "cpumem_frontend_memory_overwritten")
	n.WaitEvents("MemoryValuesOverwritten", 0)

	n.RestartFrontend()
	n.Ready()
	n.WaitMetric(1, "cpumem_frontend_memory_protection", "effective=True")

	n.SetCgroup("kubepods/burstable", "memory.min", "0")
	// Another claim is an occasion for the daemons to look.
	start(t, n, podWith(n, "other", lab.Request{Capacity: cpu("1")}))
	message := n.WaitProtection("p", "False", "Overwritten")
	require.Contains(t, message, "kubepods/burstable")
	require.Contains(t, message, "memory.min")
	n.WaitMetric(1, "cpumem_frontend_memory_overwritten")
	notes := n.WaitEvents("MemoryValuesOverwritten", 1)
	require.Contains(t, notes[0], `kubepods/burstable memory.min = "0"`)
	require.Equal(t, "1073741824", n.ReadCgroup("kubepods/burstable", "memory.min"))
	n.Check()

	require.NoError(t, n.Remove(p))
	n.WaitMetric(0, "cpumem_frontend_memory_protection", "effective=False")
	n.WaitEvents("MemoryValuesOverwritten", 1)
	n.Check()
}

// A44: a new claim raises the values that ancestors need. Until the actuator has
// written them, other claims keep their findings.
func TestProtectionWhileTheActuatorIsBehind(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	memory := lab.Request{Zone: "numa-1", Capacity: map[string]string{"memory": "1Gi"}}
	start(t, n, podWith(n, "p", memory))
	n.WaitProtection("p", "True", "Protected")
	n.WaitStatus("p", "True", "Prepared")
	writes := n.API.StatusWrites()

	resume := n.PauseActuator()
	q := podWith(n, "q", memory)
	require.True(t, n.Allocate(q))
	require.NoError(t, n.Prepare(q))
	require.Contains(t, n.WaitProtection("q", "Unknown", "NotStarted"), "the protection is not there yet")
	n.WaitMetric(1, "cpumem_frontend_memory_protection", "effective=Unknown")
	n.WaitMetric(1, "cpumem_frontend_memory_protection", "effective=True")
	n.WaitProtection("p", "True", "Protected")
	resume()
	c, err := n.CreateContainer(q, "main")
	require.NoError(t, err)
	require.NoError(t, c.Start())
	n.WaitProtection("q", "True", "Protected")
	n.WaitMetric(2, "cpumem_frontend_memory_protection", "effective=True")
	require.Equal(t, writes+2, n.API.StatusWrites(), "q pending and q protected")
	n.Check()
}

// A45: with kubelet as the owner, the driver writes the container's values and not
// its ancestors'. The claim's status has whether kubelet's values are enough.
func TestKubeletOwnsAncestors(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Configure: func(c *config.Config) { c.MemoryQoS.Owner = config.OwnerKubelet },
	})
	p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"memory": "1Gi"}})
	c := start(t, n, p)[0]
	require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	pod := "kubepods/burstable/pod" + p.UID
	levels := []string{"kubepods", "kubepods/burstable", pod}
	for _, dir := range levels {
		require.Equal(t, "0", n.ReadCgroup(dir, "memory.min"))
	}
	require.Contains(t, n.WaitProtection("p", "False", "AncestorUnprotected"), "TieredReservation")

	// Only kubelet writes; the driver's files do not change.
	for _, dir := range levels {
		n.SetCgroup(dir, "memory.min", "1073741824")
	}
	n.WaitProtection("p", "True", "Protected")
	n.Check()
}

// A45: without an owner, no memory is protected and no condition is about protection.
func TestNobodyOwnsMemory(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Configure: func(c *config.Config) { c.MemoryQoS.Owner = config.OwnerNone },
	})
	c := start(t, n, podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: map[string]string{"memory": "1Gi"}}))[0]
	require.Equal(t, []string{"0", "1073741824"}, []string{c.ReadCgroup("memory.min"), c.ReadCgroup("memory.max")})
	require.Equal(t, "0", n.ReadCgroup("kubepods", "memory.min"))
	require.Len(t, n.WaitStatus("p", "True", "Prepared").Conditions, 1)
}

// A44: a second owner in kubelet's configuration is reported once for each change of
// the file.
func TestKubeletsConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubelet.json")
	write := func(gates string) {
		require.NoError(t, os.WriteFile(file, []byte(`{"kind":"KubeletConfiguration","featureGates":{`+gates+`}}`), 0o600))
	}
	write(`"MemoryQoS":false`)
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs,
		Configure: func(c *config.Config) { c.KubeletConfigFile, c.RefreshInterval.Duration = file, time.Second },
		API: func(a *lab.API) {
			nodes := a.Client.CoreV1().Nodes()
			node, err := nodes.Get(t.Context(), lab.NodeName, metav1.GetOptions{})
			require.NoError(t, err)
			node.Status.NodeInfo.KubeletVersion = "v1.37.0"
			_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			require.NoError(t, err)
		}})
	const finding = "cpumem_frontend_kubelet_findings"
	n.WaitMetric(0, finding, "reason=SecondMemoryOwner")
	write("")
	n.WaitMetric(1, finding, "reason=SecondMemoryOwner")
	require.Contains(t, n.WaitEvents("SecondMemoryOwner", 1)[0], "MemoryQoS: false")
	write(`"MemoryQoS":false`)
	n.WaitMetric(0, finding, "reason=SecondMemoryOwner")
	write(`"MemoryQoS":"no"`)
	n.WaitMetric(1, finding, "reason=KubeletConfigUnknown")
	n.WaitEvents("KubeletConfigUnknown", 1)
	n.WaitEvents("SecondMemoryOwner", 1)
}
