// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// What claims hold is counted at their own zone. Results of one claim on the same zone
// add up, and what a claim holds on a zone that is not offered is not counted.
func TestUses(t *testing.T) {
	divided := divide(t, func(*zones.Config) {})
	claims := []contract.ClaimRecord{
		held("numa-0", contract.Decision{CPUs: contracttest.CPUs("0")}, map[string]string{"cpu": "1", "memory": "1Gi"}),
		held("numa-1", contract.Decision{CPUs: contracttest.CPUs("2,6")}, map[string]string{"cpu": "2", "hugepages_2Mi": "4Mi"}),
		held("machine", contract.Decision{CPUs: contracttest.CPUs("3")}, map[string]string{"cpu": "1", "memory": "1Gi"}),
	}
	claims[1].Results = append(claims[1].Results, contract.ResultRecord{Device: "numa-1", Consumed: map[string]string{"hugepages_2Mi": "2Mi"}})
	offered := divided.Offer(claims)
	uses := divided.Uses(offered, claims)
	require.Len(t, uses, 2)

	require.Equal(t, "numa-0", uses[0].Zone)
	require.Equal(t, zones.Amount{Capacity: int64(offered[0].CPUCapacity), Claimed: 1}, uses[0].Amounts["cpu"])
	require.Equal(t, zones.Amount{Capacity: offered[0].Memory, Claimed: gi}, uses[0].Amounts["memory"])
	require.Zero(t, uses[0].Amounts["hugepages_2Mi"].Claimed)
	require.Equal(t, cpulayout.Blocks{Cores: 1, L3sTotal: 1, CoresOfL3: 1}, uses[0].Free, "CPU 0 is held, and its core has CPU 4")

	require.Equal(t, zones.Amount{Capacity: 512 * 2 << 20, Claimed: 6 << 20}, uses[1].Amounts["hugepages_2Mi"])
	require.EqualValues(t, 2, uses[1].Amounts["cpu"].Claimed)
	require.Equal(t, cpulayout.Blocks{L3sTotal: 1}, uses[1].Free, "a displaced claim holds CPU 3")
	require.NotContains(t, uses[1].Amounts, resourceapi.QualifiedName("hugepages_64Ki"))

	// The shared pool keeps a CPU of the first zone: claims cannot get both cores.
	empty := divided.Uses(divided.Offer(nil), nil)
	require.Equal(t, cpulayout.Blocks{Cores: 1, L3s: 1, L3sTotal: 1, CoresOfL3: 1}, empty[0].Free)
	require.Equal(t, cpulayout.Blocks{Cores: 2, L3s: 1, L3sTotal: 1, CoresOfL3: 2}, empty[1].Free)
}
