// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/inventory"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const gi = int64(1) << 30

func compute(t *testing.T, change func(*config.Config)) inventory.Inventory {
	t.Helper()
	c := config.Default()
	change(&c)
	i, err := inventory.Compute(c, topologytest.T2().Machine())
	require.NoError(t, err)
	return i
}

func held(device string, d contract.Decision, consumed map[string]string) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "default", Name: "c", UID: device, Results: []contract.ResultRecord{{Device: device, Decision: d, Consumed: consumed}}}
}

// Claims of zones that are cut otherwise now are left out of what is published,
// so that the scheduler cannot give their CPUs and memory away again (I1).
func TestDisplaced(t *testing.T) {
	node1 := held("numa-1", contract.Decision{CPUs: "2,6", Mems: "1"}, map[string]string{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"})
	node0 := held("numa-0", contract.Decision{CPUs: "0"}, map[string]string{"cpu": "1"})
	claims := []contract.ClaimRecord{node0, node1}

	same := compute(t, func(*config.Config) {})
	require.Empty(t, same.Displaced(claims))
	require.Equal(t, same, same.Without(nil))

	machine := compute(t, func(c *config.Config) { c.GroupBy = "machine" })
	require.Equal(t, claims, machine.Displaced(claims))
	was, is := machine.Zones[0], machine.Without(claims).Zones[0]
	require.Equal(t, was.CPUCapacity-3, is.CPUCapacity)
	require.Equal(t, was.Memory-gi, is.Memory)
	require.Equal(t, was.Hugepages[2<<20]-2, is.Hugepages[2<<20])
	require.Equal(t, was.Hugepages[1<<30], is.Hugepages[1<<30])
	require.Equal(t, int64(1024), machine.Zones[0].Hugepages[2<<20], "the inventory itself stays as it is")

	// Memory of the whole machine may be on any node.
	whole := held("machine", contract.Decision{CPUs: "0-1,4", Mems: "0-1"}, map[string]string{"cpu": "3", "memory": "2Gi"})
	nodes := same.Without([]contract.ClaimRecord{whole})
	require.Equal(t, same.Zones[0].CPUCapacity-3, nodes.Zones[0].CPUCapacity)
	require.Equal(t, same.Zones[1].CPUCapacity, nodes.Zones[1].CPUCapacity)
	for i := range nodes.Zones {
		require.Equal(t, same.Zones[i].Memory-2*gi, nodes.Zones[i].Memory)
	}
}

func TestDisplacedInSteps(t *testing.T) {
	cores := compute(t, func(c *config.Config) { c.CPU.WholeCores = true })
	is := cores.Without([]contract.ClaimRecord{held("machine", contract.Decision{CPUs: "2"}, map[string]string{"cpu": "1"})})
	require.Equal(t, cores.Zones[1].CPUCapacity-2, is.Zones[1].CPUCapacity)
}

func TestDisplacedTakesAll(t *testing.T) {
	i := compute(t, func(*config.Config) {})
	is := i.Without([]contract.ClaimRecord{held("machine", contract.Decision{CPUs: "0-7", Mems: "0-1"},
		map[string]string{"cpu": "8", "memory": "1Ti", "hugepages_2Mi": "1Ti", "hugepages_1Gi": "1Ti"})})
	require.Empty(t, is.Zones)
}
