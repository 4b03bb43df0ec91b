// SPDX-License-Identifier: Apache-2.0

package health_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/health"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const (
	mi = topologytest.Mi
	gi = topologytest.Gi
)

func claim(name string, results ...contract.ResultRecord) contract.ClaimRecord {
	return contract.ClaimRecord{Namespace: "ns", Name: name, UID: name, Results: results}
}

func result(device, cpus, mems string, consumed map[string]string) contract.ResultRecord {
	return contract.ResultRecord{Device: device, Consumed: consumed,
		Decision: contract.Decision{CPUs: contracttest.CPUs(cpus), Mems: contracttest.NUMANodes(mems)}}
}

func key(name string, i int) contract.Key { return contract.Key{ClaimUID: name, Index: i} }

// A06: live claims are kept. The message about a missing amount has the numbers,
// and how many claims hold it.
func TestCheck(t *testing.T) {
	offline := func(ids ...int) func(*topologytest.Spec) {
		return func(s *topologytest.Spec) {
			for _, id := range ids {
				for i := range s.CPUs {
					s.CPUs[i].Offline = s.CPUs[i].Offline || s.CPUs[i].ID == id
				}
			}
		}
	}
	pages := func(node int, size, n int64) func(*topologytest.Spec) {
		return func(s *topologytest.Spec) { s.Nodes[node].Hugepages = map[int64]int64{size: n} }
	}
	cpus := claim("cpus", result("numa-1", "2,6", "", map[string]string{"cpu": "2"}))
	a := claim("a", result("numa-0", "", "0", map[string]string{"hugepages_2Mi": "512Mi"}))
	b := claim("b", result("numa-0", "", "0", map[string]string{"hugepages_2Mi": "512Mi", "hugepages_1Gi": "0", "memory": "0"}))
	memory := claim("m", result("numa-0", "", "0", map[string]string{"memory": "12Gi"}))

	isolated := claim("isolated", result("numa-0", "0", "", nil), result("numa-1", "3", "", nil))
	isolated.Results[1].Decision.Partition = contract.PartitionIsolated
	const lost = `other containers may run on CPUs 3 of a claim: ` +
		`the kernel does not grant its cpuset partition ("Cpu list in cpuset.cpus not exclusive")`

	type results = map[contract.Key]health.Finding
	for name, c := range map[string]struct {
		change  func(*topologytest.Spec)
		claims  []contract.ClaimRecord
		devices map[string]string
		reasons map[string][]string
		results results
		// invalid has the kernel's reasons for lost partitions.
		invalid map[string]string
	}{
		"no claim": {change: offline(2, 3, 6, 7)},
		"all is there": {
			change: func(*topologytest.Spec) {},
			claims: []contract.ClaimRecord{cpus, a, b, memory},
		},
		"a partition lost": {
			change: func(*topologytest.Spec) {}, claims: []contract.ClaimRecord{cpus, isolated},
			invalid: map[string]string{"isolated": "Cpu list in cpuset.cpus not exclusive", "gone": "x"},
			reasons: map[string][]string{"PartitionInvalid": {"numa-1"}},
			devices: map[string]string{"numa-1": lost},
			results: results{key("isolated", 1): {"PartitionInvalid", lost}},
		},
		"a partition lost with its CPU": {
			change: offline(3), claims: []contract.ClaimRecord{isolated},
			invalid: map[string]string{"isolated": "Cpu list in cpuset.cpus not exclusive"},
			reasons: map[string][]string{"CPUsOffline": {"numa-1"}, "PartitionInvalid": {"numa-1"}},
			devices: map[string]string{"numa-1": "CPUs 3 of a claim's CPUs 3 are offline; " + lost},
			results: results{key("isolated", 1): {"CPUsOffline", "CPUs 3 of a claim's CPUs 3 are offline; " + lost}},
		},
		"a claim without a partition cannot lose it": {
			change: func(*topologytest.Spec) {}, claims: []contract.ClaimRecord{cpus}, invalid: map[string]string{"cpus": "x"},
		},
		"an offline CPU of nobody": {change: offline(3), claims: []contract.ClaimRecord{cpus}},
		"an offline CPU": {
			change: offline(6), claims: []contract.ClaimRecord{cpus, a},
			reasons: map[string][]string{"CPUsOffline": {"numa-1"}},
			devices: map[string]string{"numa-1": "CPUs 6 of a claim's CPUs 2,6 are offline"},
			results: results{key("cpus", 0): {"CPUsOffline", "CPUs 6 of a claim's CPUs 2,6 are offline"}},
		},
		"a whole node": {
			change: offline(2, 3, 6, 7), claims: []contract.ClaimRecord{cpus},
			reasons: map[string][]string{"CPUsOffline": {"numa-1"}},
			devices: map[string]string{"numa-1": "CPUs 2,6 of a claim's CPUs 2,6 are offline"},
			results: results{key("cpus", 0): {"CPUsOffline", "CPUs 2,6 of a claim's CPUs 2,6 are offline"}},
		},
		"page pool as large as the claims": {change: pages(0, 2*mi, 512), claims: []contract.ClaimRecord{a, b}},
		"page pool shrunk": {
			change: pages(0, 2*mi, 511), claims: []contract.ClaimRecord{a, b},
			reasons: map[string][]string{"HugepagesShort": {"numa-0"}},
			devices: map[string]string{"numa-0": "NUMA nodes 0 have 1071644672 bytes of hugepages_2Mi, " +
				"less than the 1073741824 bytes held by 2 claims"},
			results: results{
				key("a", 0): {"HugepagesShort", "NUMA nodes 0 have 1071644672 bytes of hugepages_2Mi, " +
					"less than the 1073741824 bytes held by 2 claims"},
				key("b", 0): {"HugepagesShort", "NUMA nodes 0 have 1071644672 bytes of hugepages_2Mi, " +
					"less than the 1073741824 bytes held by 2 claims"},
			},
		},
		"page pool gone, one claim": {
			change: pages(0, gi, 2), claims: []contract.ClaimRecord{a},
			reasons: map[string][]string{"HugepagesShort": {"numa-0"}},
			devices: map[string]string{"numa-0": "NUMA nodes 0 have 0 bytes of hugepages_2Mi, " +
				"less than the 536870912 bytes held by 1 claim"},
			results: results{key("a", 0): {"HugepagesShort", "NUMA nodes 0 have 0 bytes of hugepages_2Mi, " +
				"less than the 536870912 bytes held by 1 claim"}},
		},
		"hugepages of another size take the memory": {
			change: pages(0, gi, 5), claims: []contract.ClaimRecord{memory},
			reasons: map[string][]string{"MemoryShort": {"numa-0"}},
			devices: map[string]string{"numa-0": "NUMA nodes 0 have 11811160064 bytes of memory, " +
				"less than the 12884901888 bytes held by 1 claim"},
			results: results{key("m", 0): {"MemoryShort", "NUMA nodes 0 have 11811160064 bytes of memory, " +
				"less than the 12884901888 bytes held by 1 claim"}},
		},
		"several at once": {
			change: func(s *topologytest.Spec) { offline(2)(s); pages(1, gi, 0)(s) },
			claims: []contract.ClaimRecord{claim("c",
				result("numa-0", "0", "", map[string]string{"cpu": "1"}),
				result("numa-1", "2", "1", map[string]string{"cpu": "1", "hugepages_1Gi": "1Gi"}))},
			reasons: map[string][]string{"CPUsOffline": {"numa-1"}, "HugepagesShort": {"numa-1"}},
			devices: map[string]string{"numa-1": "CPUs 2 of a claim's CPUs 2 are offline; " +
				"NUMA nodes 1 have 0 bytes of hugepages_1Gi, " +
				"less than the 1073741824 bytes held by 1 claim"},
			results: results{key("c", 1): {"CPUsOffline", "CPUs 2 of a claim's CPUs 2 are offline; " +
				"NUMA nodes 1 have 0 bytes of hugepages_1Gi, " +
				"less than the 1073741824 bytes held by 1 claim"}},
		},
		"socket zone": {
			change: pages(1, 2*mi, 100),
			claims: []contract.ClaimRecord{claim("s", result("machine", "", "0-1", map[string]string{"hugepages_2Mi": "1224Mi"}))},
		},
		"a node that is gone": {
			change:  func(*topologytest.Spec) {},
			claims:  []contract.ClaimRecord{claim("g", result("numa-7", "", "7", map[string]string{"memory": "1Gi"}))},
			reasons: map[string][]string{"MemoryShort": {"numa-7"}},
			devices: map[string]string{"numa-7": "NUMA nodes 7 have 0 bytes of memory, less than the 1073741824 bytes held by 1 claim"},
			results: results{key("g", 0): {"MemoryShort", "NUMA nodes 7 have 0 bytes of memory, " +
				"less than the 1073741824 bytes held by 1 claim"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := topologytest.T2()
			c.change(&spec)
			if c.devices == nil {
				c.devices = map[string]string{}
			}
			if c.results == nil {
				c.results = results{}
			}
			if c.reasons == nil {
				c.reasons = map[string][]string{}
			}
			require.Equal(t, health.Report{Devices: c.devices, ByReason: c.reasons, Results: c.results},
				health.Check(spec.Machine(), c.claims, c.invalid))
		})
	}
}

// CPUs of a claim may come to be another program's. The claim's containers run on what is left, or on other CPUs.
func TestTakenCPUs(t *testing.T) {
	m := topologytest.T2().Machine()
	m.Restricted = contracttest.CPUs("6-7")
	claims := []contract.ClaimRecord{
		claim("taken", result("numa-1", "2,6", "", nil)), claim("whole", result("numa-0", "0,4", "", nil)),
	}
	r := health.Check(m, claims, nil)
	require.Equal(t, map[string][]string{"CPUsTaken": {"numa-1"}}, r.ByReason)
	require.Len(t, r.Results, 1)
	require.Contains(t, r.Results[key("taken", 0)].Message, "CPUs 6 of a claim's CPUs 2,6 are taken")
}

// The message of a device reaches pods of all namespaces, so it names no claim. It has
// equal messages once.
func TestMessagesNameNoClaim(t *testing.T) {
	var claims []contract.ClaimRecord
	for i := range 100 {
		claims = append(claims, claim(fmt.Sprintf("c%03d", i), result("numa-0", "99", "0", map[string]string{"memory": "1Gi"})))
	}
	r := health.Check(topologytest.T2().Machine(), claims, nil)
	require.Len(t, r.Results, 100)
	require.Contains(t, r.Devices["numa-0"], "held by 100 claims")
	require.NotContains(t, r.Devices["numa-0"], "c0")
	require.Less(t, len(r.Devices["numa-0"]), 300)
	one := health.Check(topologytest.T2().Machine(), claims[:1], nil)
	require.Equal(t, "CPUs 99 of a claim's CPUs 99 are offline", one.Devices["numa-0"])
}
