// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// A71, A72: CPUs of isolcpus, and CPUs that no pod can have, are neither
// claimed nor shared.
func TestLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		isolated, restricted contract.CPUSet
		change               func(*zones.Config)
		pool, others         string
		cpus                 []string
		capacities           []int
		// left is Isolated and Restricted of each zone.
		left [][2]int
	}{
		"isolcpus": {contract.CPUs(1, 5, 6, 7), contract.CPUs(), func(*zones.Config) {},
			"0,2-4", "1,5-7", []string{"0,4", "2-3"}, []int{1, 2}, [][2]int{{2, 0}, {2, 0}}},
		"isolcpus, offered": {contract.CPUs(1, 5, 6, 7), contract.CPUs(), func(c *zones.Config) { c.OfferIsolated = true },
			"0-7", "", []string{"0-1,4-5", "2-3,6-7"}, []int{3, 4}, [][2]int{{0, 0}, {0, 0}}},
		"restricted": {contract.CPUs(), contract.CPUs(3), func(c *zones.Config) { c.OfferIsolated = true },
			"0-2,4-7", "3", []string{"0-1,4-5", "2,6-7"}, []int{3, 3}, [][2]int{{0, 0}, {0, 1}}},
		"both": {contract.CPUs(2, 3), contract.CPUs(3, 7), func(*zones.Config) {},
			"0-1,4-6", "2-3,7", []string{"0-1,4-5", "6"}, []int{3, 1}, [][2]int{{0, 0}, {1, 2}}},
		"whole cores": {contract.CPUs(3), contract.CPUs(), func(c *zones.Config) { c.WholeCores = true },
			"0-2,4-7", "3", []string{"0-1,4-5", "2,6"}, []int{4, 2}, [][2]int{{0, 0}, {1, 0}}},
		"managed": {contract.CPUs(0, 1, 2), contract.CPUs(), func(c *zones.Config) { c.ManagedCPUs = contract.CPUs(1, 5, 2, 3, 6, 7) },
			"3,5-7", "0-2,4", []string{"5", "3,6-7"}, []int{0, 3}, [][2]int{{1, 0}, {1, 0}}},
		"fixed": {contract.CPUs(0, 1, 2), contract.CPUs(), func(c *zones.Config) {
			c.SharedMode, c.ManagedCPUs = zones.PoolFixed, contract.CPUs(1, 5, 2, 3, 6, 7)
		}, "4", "0-2", []string{"5", "3,6-7"}, []int{1, 3}, [][2]int{{1, 0}, {1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := topologytest.T2().Machine()
			m.Isolated, m.Restricted = c.isolated, c.restricted
			cfg := config()
			c.change(&cfg)
			divided, err := zones.Divide(m, cfg)
			require.NoError(t, err)
			zs, pool := divided.Zones, divided.Pool
			require.Equal(t, []string{c.pool, c.others}, []string{pool.CPUs.String(), pool.UnmanagedCPUs.String()})
			require.Len(t, zs, len(c.cpus))
			for i, z := range zs {
				require.Equal(t, c.cpus[i], z.CPUs.String())
				require.Equal(t, c.capacities[i], z.CPUCapacity)
				require.Equal(t, c.left[i], [2]int{z.Isolated, z.Restricted})
			}
		})
	}
}

// Managed CPUs that are no whole cores are in no claim, and a fixed pool does not have them either.
func TestCPUsOfNoPoolAreSaid(t *testing.T) {
	for name, c := range map[string]struct {
		mode       zones.PoolMode
		managed    contract.CPUSet
		wholeCores bool
		want       string
	}{
		"half of a core":          {zones.PoolFixed, contract.CPUs(1, 5, 2, 3, 7), true, "CPUs 2"},
		"whole cores only":        {zones.PoolFixed, contract.CPUs(1, 5, 3, 7), true, ""},
		"single CPUs are offered": {zones.PoolFixed, contract.CPUs(1, 5, 2, 3, 7), false, ""},
		"the dynamic pool has it": {zones.PoolDynamic, contract.CPUs(1, 5, 2, 3, 7), true, ""},
		"all CPUs of the machine": {zones.PoolDynamic, contract.CPUs(), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			cfg.SharedMode, cfg.ManagedCPUs, cfg.WholeCores = c.mode, c.managed, c.wholeCores
			divided, err := zones.Divide(topologytest.T2().Machine(), cfg)
			require.NoError(t, err)
			var what []string
			for _, l := range divided.LeftOut() {
				what = append(what, l.What)
			}
			require.Equal(t, c.want, strings.Join(what, " "))
		})
	}
}

// One configuration serves nodes whose kernels have other page sizes.
func TestPageSizesThatTheKernelLacksAreSaid(t *testing.T) {
	m, cfg := topologytest.T1().Machine(), config()
	cfg.ReservedHugepages = map[int]map[int64]int64{0: {2 * mi: 1, 512 * mi: 1}}
	divided, err := zones.Divide(m, cfg)
	require.NoError(t, err)
	require.Equal(t, []zones.LeftOut{
		{What: "reservedHugepages of 512Mi on NUMA node 0", Why: "the kernel has no pages of this size"},
	}, divided.LeftOut())
}

func TestLeftOutIsSaid(t *testing.T) {
	m := expander().Machine()
	m.Isolated, m.Restricted = contract.CPUs(2, 3), contract.CPUs(7)
	cfg := config()
	cfg.MemoryTypes = []topology.MemoryType{topology.MemoryDRAM}
	divided, err := zones.Divide(m, cfg)
	require.NoError(t, err)
	got := divided.LeftOut()
	require.Len(t, got, 3)
	require.Equal(t, []string{"CPUs 2-3", "CPUs 7", "memory of NUMA node 2"}, []string{got[0].What, got[1].What, got[2].What})
	require.Contains(t, got[0].Why, "isolcpus")
	require.Contains(t, got[2].Why, "its kind is cxl, memoryTypes are [dram]")

	m.Restricted = contract.CPUs(1, 4, 5, 6, 7)
	m.ForeignPartitions = []topology.ForeignPartition{
		{Cgroup: "rt.slice", Kind: "root", CPUs: contract.CPUs(5, 6)}, {Cgroup: "rt.slice/inner", Kind: "isolated", CPUs: contract.CPUs(6)},
		{Cgroup: "machine.slice/vm", Kind: "isolated", CPUs: contract.CPUs(7)},
	}
	divided, err = zones.Divide(m, cfg)
	require.NoError(t, err)
	require.Equal(t, []zones.LeftOut{
		{What: "CPUs 5-6", Why: `the cgroup "rt.slice" is a cpuset partition (root) of another program`},
		{What: "CPUs 7", Why: `the cgroup "machine.slice/vm" is a cpuset partition (isolated) of another program`},
		{What: "CPUs 1,4", Why: "no pod can have them: cpuset.cpus of kubepods or of a cgroup above lacks them, " +
			"or a cpuset partition of another program has them"},
	}, divided.LeftOut()[1:4])
	m.Restricted = contract.CPUs(7)

	m.Isolated = m.Online()
	_, err = zones.Divide(m, cfg)
	require.ErrorContains(t, err, `the shared pool has 0 CPUs () of those online (0-7) without 0-7 (isolcpus: "0-7", no pod can have: "7")`)
}
