// SPDX-License-Identifier: Apache-2.0

package contract_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
)

func TestEncodeNodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*contract.NodeState)
		err  string
	}{
		"version":        {func(s *contract.NodeState) { s.V = "v2" }, "version"},
		"boot id":        {func(s *contract.NodeState) { s.BootID = "" }, "bootID"},
		"no shared cpus": {func(s *contract.NodeState) { s.Shared.CPUs = contract.CPUs() }, "shared cpus"}, // I7
		"no shared mems": {func(s *contract.NodeState) { s.Shared.Mems = contract.NUMANodes() }, "shared mems"},
		"pod UID": {
			edit: func(s *contract.NodeState) { s.Pods["pod"] = contract.PodState{Claims: []string{claimUID}} },
			err:  "object UID",
		},
		"empty feature": {
			edit: func(s *contract.NodeState) {
				s.Pods[podUID] = contract.PodState{Claims: []string{claimUID}, Requires: []string{""}}
			},
			err: "pod " + podUID + ": requires: empty feature name",
		},
		"pod, no claim": {func(s *contract.NodeState) { s.Pods[podUID] = contract.PodState{} }, "no claim"},
		"claim UID": {
			edit: func(s *contract.NodeState) { s.Pods[podUID] = contract.PodState{Claims: []string{"x"}} },
			err:  "object UID",
		},
		"unknown level":  {func(s *contract.NodeState) { s.Ancestors["guaranteed"] = nil }, "QoS level"},
		"empty content":  {func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "" }, "neither bytes"},
		"padded content": {func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "01" }, "neither bytes"},
		"negative":       {func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "-1" }, "neither bytes"},
		"two lines":      {func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "1\n" }, "neither bytes"},
		"units":          {func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "1G" }, "neither bytes"},
		"beyond int64": {
			edit: func(s *contract.NodeState) { s.Pods[podUID].Cgroup["memory.min"] = "9223372036854775808" },
			err:  "neither bytes",
		},
		"partitions of an unknown level": {
			edit: func(s *contract.NodeState) {
				s.PartitionCPUs = map[string]contract.CPUSet{"guaranteed": contract.CPUs(1)}
			},
			err: "QoS level",
		},
		"level without partition CPUs": {
			edit: func(s *contract.NodeState) { s.PartitionCPUs = map[string]contract.CPUSet{"": {}} },
			err:  `level "" has an empty set`,
		},
		"pod's partitions on the whole pool": {func(s *contract.NodeState) {
			p := s.Pods[podUID]
			p.PartitionCPUs = s.Shared.CPUs
			s.Pods[podUID] = p
		}, "nothing is left of the shared pool"}, // I7
		"ancestor amount": {func(s *contract.NodeState) { s.Ancestors[""]["memory.min"] = "much" }, "neither bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := goldenNodes()["node"]
			tc.edit(&s)
			_, err := contract.EncodeNode(s)
			require.ErrorContains(t, err, tc.err)
			require.ErrorContains(t, s.Validate(), tc.err)
		})
	}
}

// A list of the node state that is not normalised is refused with its member.
func TestDecodeNodeRefusesLooseLists(t *testing.T) {
	good, err := contract.EncodeNode(goldenNodes()["node-partitions"])
	require.NoError(t, err)
	for name, tc := range map[string]struct{ list, loose, err string }{
		"shared cpus":            {`\"cpus\":\"0-15\"`, `\"cpus\":\"1,0\"`, `shared: cpus: list "1,0" is not normalised`},
		"pod's partition CPUs":   {`\"exclusive\":\"4-7\"`, `\"exclusive\":\"x\"`, `exclusive: list "x"`},
		"level's partition CPUs": {`\"4-7,12\"`, `\"12,4-7\"`, `exclusive: : list "12,4-7"`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(good), tc.list)
			_, err := contract.DecodeNode(bytes.Replace(good, []byte(tc.list), []byte(tc.loose), 1))
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestSharedOf(t *testing.T) {
	s := goldenNodes()["node-partitions"]
	require.Equal(t, contract.Shared{CPUs: contracttest.CPUs("0-3,8-15"), Mems: contracttest.NUMANodes("0")}, s.SharedOf(podUID))
	require.Equal(t, s.Shared, s.SharedOf(otherUID), "the kernel takes partitions from others by itself")
}

// The actuator writes the frontend's files as they are, so the list of names is
// closed.
func TestCgroupFilesAreAClosedList(t *testing.T) {
	for name, allowed := range map[string]struct{ pod, ancestor bool }{
		"memory.min":            {true, true},
		"memory.low":            {true, true},
		"hugetlb.2MB.max":       {pod: true},
		"hugetlb.64KB.max":      {pod: true},
		"hugetlb.16GB.rsvd.max": {pod: true},
		"memory.max":            {},
		"memory.high":           {},
		"memory.minimum":        {},
		"memoryxmin":            {},
		"cpuset.cpus":           {},
		"cpuset.cpus.exclusive": {}, // an older actuator would refuse the whole state
		"cgroup.procs":          {},
		"cgroup.kill":           {},
		"hugetlb.2MB.min":       {},
		"hugetlb.2Mi.max":       {},
		"hugetlb.0MB.max":       {},
		"hugetlb.2MBmax":        {},
		"../memory.min":         {},
		"memory.min/../x":       {},
		"memory.min\n":          {},
		"x/memory.min":          {},
		"Memory.min":            {},
		"":                      {},
	} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			check := func(want bool, edit func(*contract.NodeState)) {
				s := goldenNodes()["node"]
				edit(&s)
				if want {
					require.NoError(t, s.Validate())
				} else {
					require.ErrorContains(t, s.Validate(), "not on the contract's list")
				}
			}
			check(allowed.pod, func(s *contract.NodeState) { s.Pods[podUID].Cgroup[name] = "0" })
			check(allowed.ancestor, func(s *contract.NodeState) { s.Ancestors[contract.LevelBurstable][name] = "0" })
		})
	}
}

func TestDecodeNodeRefuses(t *testing.T) {
	data, err := contract.EncodeNode(goldenNodes()["node"])
	require.NoError(t, err)
	for name, tc := range map[string]struct{ old, new, err string }{
		"pods missing":       {`\"pods\"`, `\"pots\"`, `"pods" is missing`},
		"ancestors missing":  {`\"ancestors\"`, `\"parents\"`, `"ancestors" is missing`},
		"generation missing": {`\"generation\"`, `\"gen\"`, `"generation" is missing`},
		"shared mems gone":   {`,\"mems\":\"0-1\"`, ``, `"mems" is missing`},
		"empty pool":         {`\"cpus\":\"0,8-15\"`, `\"cpus\":\"\"`, "shared: cpus: empty list"}, // I7
		"negative":           {`\"generation\":42`, `\"generation\":-1`, "generation"},
		"pod twice":          {`\"pods\":{`, `\"pods\":{\"` + podUID + `\":{\"claims\":[\"` + claimUID + `\"]},`, "twice"},
		"claims null":        {`\"claims\":[`, `\"claims\":null,\"x\":[`, "null"},
		"claim of no UID":    {claimUID, "x", "object UID"},
		"other file":         {"hugetlb.1GB.max", "cpuset.cpus", "not on the contract's list"},
		"record version":     {`{\"v\":\"v1\"`, `{\"v\":\"v2\"`, `version "v2"`},
		"kind":               {`"dra.cpumem/node"`, `"dra.cpumem/claim"`, "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := contract.DecodeNode(swap(data, tc.old, tc.new))
			require.ErrorContains(t, err, tc.err)
		})
	}
}

func TestEncodeNodeFillsWhatIsNil(t *testing.T) {
	idle := goldenNodes()["node-idle"]
	want, err := contract.EncodeNode(idle)
	require.NoError(t, err)
	idle.Pods, idle.Ancestors = nil, nil
	got, err := contract.EncodeNode(idle)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// nodeWith returns a node state with n pods of the largest usual kind: two
// claims, all files, long amounts.
func nodeWith(n int) contract.NodeState {
	s := goldenNodes()["node"]
	s.Pods = make(map[string]contract.PodState, n)
	for i := range n {
		uid := func(kind int) string { return fmt.Sprintf("%08x-1111-4222-8333-%012x", kind, i) }
		files := contract.Files{"memory.min": "1099511627776", "memory.low": "1099511627776"}
		for _, size := range []string{"2MB", "1GB"} {
			files["hugetlb."+size+".max"] = "1099511627776"
			files["hugetlb."+size+".rsvd.max"] = "1099511627776"
		}
		s.Pods[uid(0)] = contract.PodState{Claims: []string{uid(1), uid(2)}, Cgroup: files}
	}
	return s
}

func TestNodeFitsTheAnnotationLimit(t *testing.T) {
	// Twice the 250 pods that a node is expected to have.
	data, err := contract.EncodeNode(nodeWith(500))
	require.NoError(t, err)
	got, err := contract.DecodeNode(data)
	require.NoError(t, err)
	require.Len(t, got.Pods, 500)
	require.Less(t, len(data), contract.MaxFileSize)

	_, err = contract.EncodeNode(nodeWith(600))
	require.NoError(t, err, "room to spare")
	_, err = contract.EncodeNode(nodeWith(2000))
	require.ErrorContains(t, err, "CDI allows 262144")
}
