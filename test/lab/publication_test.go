// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// offers returns the published amounts by device name and capacity name.
func offers(n *lab.Node) map[string]map[string]string {
	out := make(map[string]map[string]string)
	for name, d := range n.API.Devices() {
		out[name] = make(map[string]string)
		for capacity, c := range d.Capacity {
			out[name][string(capacity)] = c.Value.String()
		}
	}
	return out
}

// The slices of each machine, from sysfs files to the API server.
func TestPublication(t *testing.T) {
	t.Parallel()
	reserve := func(list string) func(*config.Config) {
		return func(c *config.Config) { c.ReservedCPUs = list }
	}
	// Of 16Gi, 512 pages of 2Mi and 2 pages of 1Gi do not count as memory.
	t2 := func(cpus string) map[string]string {
		m := map[string]string{"memory": "13Gi", "hugepages_2Mi": "1Gi", "hugepages_1Gi": "2Gi"}
		if cpus != "" {
			m["cpu"] = cpus
		}
		return m
	}
	for name, c := range map[string]struct {
		spec      topologytest.Spec
		configure func(*config.Config)
		want      map[string]map[string]string
	}{
		// Without reserved CPUs, one CPU is withheld for the shared pool (I7).
		"A01 T2":               {topologytest.T2(), nil, map[string]map[string]string{"numa-0": t2("3"), "numa-1": t2("4")}},
		"A02 T2, reserved {0}": {topologytest.T2(), reserve("0"), map[string]map[string]string{"numa-0": t2("3"), "numa-1": t2("4")}},
		"A02 T2, a whole node reserved": {topologytest.T2(), reserve("0-1,4-5"),
			map[string]map[string]string{"numa-0": t2(""), "numa-1": t2("4")}},
		"A03 T6": {topologytest.T6(), func(c *config.Config) { reserve("0")(c); c.MemoryTypes = []string{"dram", "unknown"} },
			map[string]map[string]string{"numa-0": t2("3"), "numa-1": t2("4"), "numa-2": {"memory": "64Gi"}}},
		"A75 T6, memory of unknown kind": {
			spec:      topologytest.T6(),
			configure: reserve("0"),
			want:      map[string]map[string]string{"numa-0": t2("3"), "numa-1": t2("4")},
		},
		"A04 T7": {topologytest.T7(), reserve("0"), map[string]map[string]string{
			"numa-0": {"cpu": "3", "memory": "47072Mi", "hugepages_2Mi": "32Mi", "hugepages_512Mi": "2Gi", "hugepages_16Gi": "16Gi"},
			"numa-1": {"cpu": "4", "memory": "47072Mi", "hugepages_2Mi": "32Mi", "hugepages_512Mi": "2Gi", "hugepages_16Gi": "16Gi"},
		}},
		"A04 T8": {topologytest.T8(), reserve("0"), map[string]map[string]string{
			"numa-0": {"cpu": "9", "memory": "32Gi"}, "numa-8": {"cpu": "10", "memory": "32Gi"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, c.spec, lab.Options{Programs: programs, Configure: c.configure})
			require.Equal(t, c.want, offers(n))
			for name, d := range n.API.Devices() {
				require.True(t, *d.AllowMultipleAllocations)
				for capacity, v := range d.Capacity {
					require.NotNil(t, v.RequestPolicy, "%s %s", name, capacity)
					require.Zero(t, v.RequestPolicy.Default.Value(), "%s %s", name, capacity)
				}
			}
			for _, s := range n.API.Slices() {
				require.Equal(t, lab.NodeName, *s.Spec.NodeName)
				require.Equal(t, lab.NodeName, s.Spec.Pool.Name)
			}
			n.Check()
		})
	}
}

// A05: a restart publishes the same slices and writes nothing to the API server. A
// claim that was allocated before the restart is prepared after it.
func TestPublicationAfterRestart(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	before, writes := n.API.Devices(), n.API.Writes()
	p := n.Pod("p", lab.Burstable, lab.ContainerSpec{
		Name: "main", Claims: []string{n.Claim("c", lab.Request{Name: "r", Capacity: cpu("2")})},
	})
	require.True(t, n.Allocate(p))
	n.RestartFrontend()
	n.Ready()
	n.Check()
	require.Equal(t, before, n.API.Devices())
	require.Equal(t, writes, n.API.Writes(), "A08: nothing changed, nothing is written")
	require.NoError(t, n.Prepare(p))
	n.Check()
}

// A05: a reboot with less memory changes amounts, not names.
func TestPublicationAfterReboot(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	before := offers(n)
	spec := topologytest.T2()
	for i := range spec.Nodes {
		spec.Nodes[i].Memory -= 2 * topologytest.Mi
	}
	n.Reboot(spec)
	after := offers(n)
	for name := range before {
		require.Equal(t, "13Gi", before[name]["memory"])
		require.Equal(t, "13310Mi", after[name]["memory"])
		delete(before[name], "memory")
		delete(after[name], "memory")
	}
	require.Equal(t, before, after)
	n.Check()
}

// The frontend can end without an error while it writes slices.
func TestFrontendEndsWhilePublishing(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	for range 10 {
		n.RestartFrontend()
	}
	n.Ready()
	n.Check()
}

// A71: on a machine with isolcpus, the slices offer the CPUs that containers can
// have. Neither claims nor the shared pool get isolated CPUs.
func TestIsolcpusAreLeftOut(t *testing.T) {
	t.Parallel()
	spec := topologytest.T2()
	spec.Isolated = []int{1, 5, 7}
	n := newNode(t, spec)
	require.Equal(t, []string{"1", "3"}, []string{offers(n)["numa-0"]["cpu"], offers(n)["numa-1"]["cpu"]})
	require.Equal(t, int64(2), *n.API.Devices()["numa-0"].Attributes["dra.cpumem/numIsolatedCPUs"].IntValue)
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	require.Equal(t, "0,2-4,6", pool.CPUs())
	for i, want := range []string{"0", "2-3,6"} {
		name := fmt.Sprintf("claim-%d", i)
		claim := n.Claim(name, lab.Request{Name: "r", Zone: fmt.Sprintf("numa-%d", i), Capacity: cpu([]string{"1", "3"}[i])})
		require.Equal(t, want, start(t, n, n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}}))[0].CPUs())
	}
	n.Check()
}

// A72: CPUs outside of kubepods' cpuset and CPUs of a service's partition are not
// offered. Partitions of claims do not lower the offer.
func TestRestrictedCPUsAreLeftOut(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Kernel: kerneltest.Linux612, Configure: func(c *config.Config) {
		c.RefreshInterval.Duration = time.Second
	}})
	offered := func() string {
		return offers(n)["numa-0"]["cpu"] + " " + offers(n)["numa-1"]["cpu"]
	}
	require.Equal(t, "3 4", offered())
	both := start(t, n, ownPod(n, "p", isolation("partition")))
	require.Equal(t, "2,6", both[0].CPUs())
	require.Equal(t, "2,6", n.ReadCgroup("kubepods", contract.FileExclusive))

	// The claim's partition has CPUs 2 and 6, a service's partition CPU 7.
	n.MakeCgroup("services")
	n.MakeCgroup("services/one")
	n.SetCgroup("services", contract.FileExclusive, "7")
	n.SetCgroup("services/one", contract.FileExclusive, "7")
	n.SetCgroup("services/one", contract.FilePartition, "root")
	require.Equal(t, "0-1,3-5", n.ReadCgroup("", "cpuset.cpus.effective"))
	require.Eventually(t, func() bool { return offered() == "3 3" }, time.Minute, 10*time.Millisecond, "offered %s", offered())
	require.Equal(t, int64(1), *n.API.Devices()["numa-1"].Attributes["dra.cpumem/numRestrictedCPUs"].IntValue)
	require.NotContains(t, n.API.Devices()["numa-0"].Attributes, resourceapi.QualifiedName("dra.cpumem/numRestrictedCPUs"))
	n.SetCgroup("services/one", contract.FilePartition, "member")
	require.Equal(t, "0-1,3-5,7", n.ReadCgroup("", "cpuset.cpus.effective"))
	require.Eventually(t, func() bool { return offered() == "3 4" }, time.Minute, 10*time.Millisecond)

	n.SetCgroup("kubepods", "cpuset.cpus", "1-7")
	require.Eventually(t, func() bool { return offered() == "2 4" }, time.Minute, 10*time.Millisecond)
	n.SetCgroup("kubepods", "cpuset.cpus", "0-7")
	require.Eventually(t, func() bool { return offered() == "3 4" }, time.Minute, 10*time.Millisecond)
	require.Equal(t, "2,6", both[0].CPUs())
	n.Check()
}
