// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
)

// Claims with and without partitions on one node.
func TestPartitions(t *testing.T) {
	a, b := claim(claimA, "2"), claim(claimB, "3")
	a.Pods[0].QOS = contract.LevelBurstable
	a.Results[0].Decision.Partition, a.Results[0].Decision.Requires = contract.PartitionIsolated, []string{contract.FeaturePartition}
	second := a.Results[0]
	second.Request, second.Decision.CPUs, second.Decision.Partition = "more", contracttest.CPUs("4"), contract.PartitionRoot
	a.Results = append(a.Results, second)
	good := contract.NodeState{
		V: contract.Version, Generation: 7, BootID: "boot", Shared: contract.Shared{CPUs: contracttest.CPUs("0-2,4"),
			Mems: contracttest.NUMANodes("0")},
		Pods: map[string]contract.PodState{podUID: {Claims: []string{claimA, claimB}, PartitionCPUs: contracttest.CPUs("2,4")}},
		PartitionCPUs: map[string]contract.CPUSet{contract.LevelKubepods: contracttest.CPUs("2,4"),
			contract.LevelBurstable: contracttest.CPUs("2,4")},
	}
	read := func(node contract.NodeState, invalid map[string]string) inspect.Directory {
		dir := t.TempDir()
		writeFiles(t, dir, node, invalid, a, b)
		d, err := inspect.Read(dir)
		require.NoError(t, err)
		return d
	}
	d := read(good, map[string]string{claimA: "Cpu list in cpuset.cpus not exclusive", "gone": "x"})
	require.NoError(t, d.Valid())
	var out bytes.Buffer
	require.NoError(t, d.Explain(&out, ""))
	require.Contains(t, out.String(), "default/claim-a  zone     numa-0  2 (isolated)   0 ")
	require.Contains(t, out.String(), "default/claim-a  more     numa-0  4 (partition)  0 ")
	require.Contains(t, out.String(), "default/claim-b  zone     numa-0  3              0 ")
	require.Contains(t, out.String(), "shared pool: cpus 0-1, mems 0 (generation 7)\n"+
		"cpuset partitions: burstable 2,4; kubepods 2,4; pod "+podUID+" 2,4\n"+
		"cpuset partition of default/claim-a is invalid, other containers may run on its CPUs: \"Cpu list in cpuset.cpus not exclusive\"\n")

	for name, tc := range map[string]struct {
		change func(*contract.NodeState)
		want   string
	}{
		"nothing for a level": {func(s *contract.NodeState) {
			s.PartitionCPUs = map[string]contract.CPUSet{contract.LevelKubepods: contracttest.CPUs("2,4")}
		},
			`the node state gives burstable partition CPUs "", the partitions of claims below it have "2,4"`},
		"too little for kubepods": {func(s *contract.NodeState) {
			s.PartitionCPUs = map[string]contract.CPUSet{contract.LevelKubepods: contracttest.CPUs("2"),
				contract.LevelBurstable: contracttest.CPUs("2,4")}
		},
			`gives kubepods partition CPUs "2"`},
		"too much for the pod": {func(s *contract.NodeState) {
			s.Pods = map[string]contract.PodState{podUID: {Claims: []string{claimA, claimB}, PartitionCPUs: contracttest.CPUs("2-4")}}
		}, "gives pod " + podUID + ` partition CPUs "2-4"`},
		"the pool's claim": {
			change: func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs("0-4") },
			want:   "CPU 3 is held by claim default/claim-b (" + claimB + ") and in the shared pool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			tc.change(&bad)
			synctest.Test(t, func(t *testing.T) { require.ErrorContains(t, read(bad, nil).Valid(), tc.want) })
		})
	}

	// Without partitions, the text does not mention them.
	d, err := inspect.Read(directory(t, "2", "3", "0-1"))
	require.NoError(t, err)
	out.Reset()
	require.NoError(t, d.Explain(&out, ""))
	require.NotContains(t, out.String(), "partition")
}
