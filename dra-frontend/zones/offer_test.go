// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

func divide(t *testing.T, change func(*zones.Config)) zones.Division {
	t.Helper()
	c := config()
	change(&c)
	i, err := zones.Divide(topologytest.T2().Machine(), c)
	require.NoError(t, err)
	return i
}

func offer(t *testing.T, i zones.Division, claims ...contract.ClaimRecord) []zones.Zone {
	t.Helper()
	return i.Offer(claims)
}

func held(device string, d contract.Decision, consumed map[string]string) contract.ClaimRecord {
	return contract.ClaimRecord{
		Namespace: "default", Name: "c", UID: device,
		Results: []contract.ResultRecord{{Device: device, Decision: d, Consumed: consumed}},
	}
}

// CPUs and memory of claims on devices of another configuration are not
// published, so that the scheduler cannot give them away twice (I1).
func TestDisplaced(t *testing.T) {
	node1 := held("numa-1", contract.Decision{CPUs: contracttest.CPUs("2,6"), Mems: contracttest.NUMANodes("1")},
		map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"})
	node0 := held("numa-0", contract.Decision{CPUs: contracttest.CPUs("0")}, map[string]string{"cpu": "1"})
	claims := []contract.ClaimRecord{node0, node1}

	same := divide(t, func(*zones.Config) {})
	require.Empty(t, same.Displaced(claims))
	require.Equal(t, same.Zones, offer(t, same))
	require.Equal(t, same.Zones, offer(t, same, claims...), "claims that fit change nothing")

	machine := divide(t, func(c *zones.Config) { c.GroupBy = zones.Machine })
	require.Equal(t, claims, machine.Displaced(claims))
	was, is := machine.Zones[0], offer(t, machine, claims...)[0]
	require.Equal(t, was.CPUCapacity-3, is.CPUCapacity)
	require.Equal(t, was.Memory-gi, is.Memory)
	require.Equal(t, was.Hugepages[2<<20]-2, is.Hugepages[2<<20])
	require.Equal(t, was.Hugepages[1<<30], is.Hugepages[1<<30])
	require.Equal(t, int64(1024), machine.Zones[0].Hugepages[2<<20], "the inventory itself stays as it is")

	before := offer(t, machine)
	memory := held("numa-1", contract.Decision{Mems: contracttest.NUMANodes("1")}, map[string]string{"memory": "1Gi", "hugepages_2Mi": "4Mi"})
	is = offer(t, machine, memory)[0]
	require.Equal(t, []int64{was.Memory - gi, was.Hugepages[2<<20] - 2}, []int64{is.Memory, is.Hugepages[2<<20]})
	require.Equal(t, before, offer(t, machine), "an offer leaves the next one alone")

	// Memory of the whole machine may be on any node.
	whole := held("machine", contract.Decision{CPUs: contracttest.CPUs("0-1,4"), Mems: contracttest.NUMANodes("0-1")},
		map[string]string{"cpu": "3", "memory": "2Gi"})
	nodes := offer(t, same, whole)
	require.Equal(t, 0, nodes[0].CPUCapacity, "one is left, and withheld")
	require.Equal(t, 4, nodes[1].CPUCapacity)
	for i := range nodes {
		require.Equal(t, same.Zones[i].Memory-2*gi, nodes[i].Memory)
	}
}

func TestDisplacedInSteps(t *testing.T) {
	cores := divide(t, func(c *zones.Config) { c.WholeCores = true })
	require.Equal(t, 2, offer(t, cores, held("machine", contract.Decision{CPUs: contracttest.CPUs("2")},
		map[string]string{"cpu": "1"}))[1].CPUCapacity)
	// A claim from before wholeCores: no claim can get the sibling of its CPU.
	require.Equal(t, 2, offer(t, cores, held("numa-1", contract.Decision{CPUs: contracttest.CPUs("2")},
		map[string]string{"cpu": "1"}))[1].CPUCapacity)
}

func TestDisplacedTakesAll(t *testing.T) {
	i := divide(t, func(*zones.Config) {})
	require.Empty(t, offer(t, i, held("machine", contract.Decision{CPUs: contracttest.CPUs("0-7"), Mems: contracttest.NUMANodes("0-1")},
		map[string]string{"cpu": "8", "memory": "1Ti", "hugepages_2Mi": "1Ti", "hugepages_1Gi": "1Ti"})))
}

// I7: claims may hold all of the zone from which the shared pool's CPU is
// withheld. The CPU is withheld from another zone then.
func TestWithheldElsewhere(t *testing.T) {
	i := divide(t, func(*zones.Config) {})
	zs := offer(t, i, held("numa-0", contract.Decision{CPUs: contracttest.CPUs("0-1,4-5")}, map[string]string{"cpu": "4"}))
	require.Equal(t, 4, zs[0].CPUCapacity)
	require.Equal(t, 3, zs[1].CPUCapacity)
}

// A06: a CPU that a claim holds goes offline. Its zone loses the CPU, all other
// zones lose nothing.
func TestHeldCPUGoesOffline(t *testing.T) {
	m := topologytest.T2().Machine()
	m.CPUs = slices.DeleteFunc(m.CPUs, func(c topology.CPU) bool { return c.ID == 6 || c.ID == 7 })
	m.Offline = contract.CPUs(6, 7)
	i, err := zones.Divide(m, config())
	require.NoError(t, err)
	for cpus, want := range map[string]int{"2,6": 2, "2-3,6": 0} {
		d := contract.Decision{CPUs: contracttest.CPUs(cpus)}
		zs := offer(t, i, held("numa-1", d, map[string]string{"cpu": strconv.Itoa(d.CPUs.Size())}))
		require.Equal(t, 3, zs[0].CPUCapacity, cpus)
		require.Equal(t, want, zs[1].CPUCapacity, cpus)
	}
}

// The scheduler gives nothing of a device while one of its capacities is less than what is allocated of it. So a capacity of
// which claims hold more than the machine has is left out, and the zone's other capacities can be claimed.
func TestShortCapacities(t *testing.T) {
	whole := divide(t, func(*zones.Config) {})
	was := whole.Zones[1]
	for name, c := range map[string]struct {
		consumed map[string]string
		want     zones.Zone
	}{
		"all of it": {map[string]string{"cpu": "4", "memory": strconv.FormatInt(was.Memory, 10), "hugepages_2Mi": "1Gi"}, was},
		"memory":    {map[string]string{"memory": strconv.FormatInt(was.Memory+1<<20, 10)}, zones.Zone{Hugepages: was.Hugepages}},
		"hugepages": {map[string]string{"hugepages_2Mi": "4Gi"}, zones.Zone{Memory: was.Memory, Hugepages: without(was.Hugepages, 2<<20)}},
	} {
		t.Run(name, func(t *testing.T) {
			is := offer(t, whole, held("numa-1", contract.Decision{CPUs: contracttest.CPUs("2-3,6-7")}, c.consumed))
			require.Equal(t, 4, is[1].CPUCapacity)
			require.Equal(t, c.want.Memory, is[1].Memory)
			require.Equal(t, c.want.Hugepages, is[1].Hugepages)
			require.Equal(t, whole.Zones[0].Memory, is[0].Memory, "the other zone keeps all")
		})
	}
}

func without(pages map[int64]int64, size int64) map[int64]int64 {
	pages = maps.Clone(pages)
	delete(pages, size)
	return pages
}
