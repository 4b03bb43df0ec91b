// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/runtime-tools/generate"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	oci "github.com/opencontainers/runtime-tools/generate"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/guard"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

func TestForms(t *testing.T) {
	memory := &contract.Memory{Min: 4096, Low: 0, High: contract.Max, Max: 8192}
	for name, c := range map[string]struct {
		decision contract.Decision
		unified  map[string]string
		files    map[string]string
	}{
		"cpuset only": {
			decision: contract.Decision{CPUs: contracttest.CPUs("4-5"), Mems: contracttest.NUMANodes("0")},
			files:    map[string]string{"cpuset.cpus": "4-5", "cpuset.mems": "0"},
		},
		"memory": {
			decision: contract.Decision{CPUs: contracttest.CPUs("4-5"), Mems: contracttest.NUMANodes("0"), Memory: memory},
			unified:  map[string]string{"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192"},
			files: map[string]string{"cpuset.cpus": "4-5", "cpuset.mems": "0",
				"memory.min": "4096", "memory.low": "0", "memory.high": "max", "memory.max": "8192"},
		},
		"the spec's own limit": {
			decision: contract.Decision{CPUs: contracttest.CPUs("4"), Mems: contracttest.NUMANodes("0"),
				Memory: &contract.Memory{High: contract.Max, Max: contract.Max}},
			unified: map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"},
			files: map[string]string{"cpuset.cpus": "4", "cpuset.mems": "0",
				"memory.min": "0", "memory.low": "0", "memory.high": "max"},
		},
		"hugepages": {
			decision: contract.Decision{CPUs: contracttest.CPUs("4"), Mems: contracttest.NUMANodes("0"),
				Hugepages: map[string]contract.Limit{"2Mi": 4 << 20, "1Gi": contract.Max}},
			unified: map[string]string{"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304",
				"hugetlb.1GB.max": "max", "hugetlb.1GB.rsvd.max": "max"},
			files: map[string]string{"cpuset.cpus": "4", "cpuset.mems": "0",
				"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304",
				"hugetlb.1GB.max": "max", "hugetlb.1GB.rsvd.max": "max"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := adjust(c.decision, nil).GetLinux().GetResources()
			require.Nil(t, adjust(c.decision, nil).GetLinux().GetMemoryPolicy())
			require.Equal(t, c.decision.CPUs.String(), a.GetCpu().GetCpus())
			require.Equal(t, c.decision.Mems.String(), a.GetCpu().GetMems())
			require.Equal(t, c.unified, a.GetUnified())
			require.Empty(t, a.GetHugepageLimits(), "containerd may drop them")
			require.Nil(t, a.GetMemory())

			u := update("id", c.decision)
			require.Equal(t, "id", u.GetContainerId())
			require.Equal(t, c.decision.CPUs.String(), u.GetLinux().GetResources().GetCpu().GetCpus())
			require.Equal(t, c.decision.Mems.String(), u.GetLinux().GetResources().GetCpu().GetMems())
			require.Equal(t, c.unified, u.GetLinux().GetResources().GetUnified())

			require.Equal(t, c.files, map[string]string(tree.ContainerFiles(c.decision)))
		})
	}
}

// TestPolicyForm checks that each mode of the contract has the same name in the
// runtime's spec.
func TestPolicyForm(t *testing.T) {
	for _, c := range []struct {
		policy contract.MemoryPolicy
		want   specs.MemoryPolicyModeType
	}{
		{contract.MemoryPolicy{Mode: contract.ModeBind, Nodes: contracttest.NUMANodes("0-1")}, specs.MpolBind},
		{contract.MemoryPolicy{Mode: contract.ModePreferred, Nodes: contracttest.NUMANodes("1")}, specs.MpolPreferred},
		{contract.MemoryPolicy{Mode: contract.ModePreferred, Nodes: contracttest.NUMANodes("0-1")}, specs.MpolPreferredMany},
		{contract.MemoryPolicy{Mode: contract.ModeInterleave, Nodes: contracttest.NUMANodes("0-1")}, specs.MpolInterleave},
		{contract.MemoryPolicy{Mode: contract.ModeWeightedInterleave, Nodes: contracttest.NUMANodes("0-1")}, specs.MpolWeightedInterleave},
	} {
		t.Run(string(c.want), func(t *testing.T) {
			spec := kubeletSpec()
			d := contract.Decision{CPUs: contracttest.CPUs("4"), Mems: contracttest.NUMANodes("0-1"), MemoryPolicy: &c.policy}
			require.NoError(t, generate.SpecGenerator(&oci.Generator{Config: spec}).Adjust(adjust(d, nil)))
			require.Equal(t, &specs.LinuxMemoryPolicy{Mode: c.want, Nodes: c.policy.Nodes.String(),
				Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes}}, spec.Linux.MemoryPolicy)
		})
	}
}

// TestOOMScoreForm checks that the runtime's spec has the lower one of the
// decision's score and the container's own.
func TestOOMScoreForm(t *testing.T) {
	for _, c := range []struct {
		own, decided, want *int
		set                bool
	}{
		{new(1000), new(-997), new(-997), true},
		{new(1), new(0), new(0), true},
		{nil, new(500), new(500), true},
		// NRI refuses a value that two plugins set.
		{new(500), new(500), new(500), false},
		{new(-997), new(500), new(-997), false},
		{new(-1), new(0), new(-1), false},
		{new(1000), nil, new(1000), false},
		{nil, nil, nil, false},
	} {
		spec := kubeletSpec()
		spec.Process.OOMScoreAdj = c.own
		a := adjust(contract.Decision{CPUs: contracttest.CPUs("4"), Mems: contracttest.NUMANodes("0"), OOMScoreAdj: c.decided}, c.own)
		require.Equal(t, c.set, a.GetLinux().GetOomScoreAdj() != nil, c)
		require.NoError(t, generate.SpecGenerator(&oci.Generator{Config: spec}).Adjust(a))
		require.Equal(t, c.want, spec.Process.OOMScoreAdj, c)
	}
	plain := contract.Decision{CPUs: contracttest.CPUs("4"), Mems: contracttest.NUMANodes("0")}
	require.Nil(t, adjustToPool(plain).GetLinux().GetOomScoreAdj())
}

// allModes returns the modes of an OCI runtime that knows memory policies.
func allModes() ([]string, error) {
	return []string{"MPOL_BIND", "MPOL_INTERLEAVE", "MPOL_PREFERRED", "MPOL_PREFERRED_MANY", "MPOL_WEIGHTED_INTERLEAVE"}, nil
}

// TestGuardAcceptsAdjustment checks that the guard accepts the actuator's
// adjustment, over kubelet's values and through the generator that runtimes
// use.
func TestGuardAcceptsAdjustment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		decisions := make(map[contract.Key]contract.Decision)
		spec := kubeletSpec()
		for i := range rapid.IntRange(1, 4).Draw(t, "decisions") {
			key := contract.Key{ClaimUID: testnode.UID(i), Index: 0}
			decisions[key] = drawDecision(t)
			entry, err := decisions[key].Env(key)
			require.NoError(t, err)
			spec.Process.Env = append(spec.Process.Env, entry)
		}
		d := contract.Merge(decisions).WithShared(contract.Shared{CPUs: contracttest.CPUs("0-3"), Mems: contracttest.NUMANodes("0-1")})
		require.NoError(t, generate.SpecGenerator(&oci.Generator{Config: spec}).Adjust(adjust(d, spec.Process.OOMScoreAdj)))
		config, err := json.Marshal(spec)
		require.NoError(t, err)
		h := guard.Hook{
			Config:      func(string) ([]byte, error) { return config, nil },
			PolicyModes: allModes,
			OpenMount:   cgroups.Open,
			CgroupRoot:  "/nonexistent",
			Features:    contract.Features(),
		}
		require.NoError(t, h.Check(t.Context(), strings.NewReader(`{"bundle":"/b"}`)))
	})
}

// kubeletSpec returns a container as kubelet 1.37 asks for it.
func kubeletSpec() *specs.Spec {
	limit := int64(1 << 30)
	return &specs.Spec{
		Process: &specs.Process{OOMScoreAdj: new(936)},
		Linux: &specs.Linux{Resources: &specs.LinuxResources{
			Memory:         &specs.LinuxMemory{Limit: &limit},
			Unified:        map[string]string{"memory.min": "0", "memory.low": "0", "memory.oom.group": "1"},
			HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}, {Pagesize: "1GB"}},
		}},
	}
}

func drawDecision(t *rapid.T) contract.Decision {
	d := contract.Decision{V: contract.Version}
	d.CPUs = contracttest.CPUs(rapid.SampledFrom([]string{"", "4", "4-7", "5,9", "12-15"}).Draw(t, "cpus"))
	d.Mems = contracttest.NUMANodes(rapid.SampledFrom([]string{"", "0", "1", "0-1"}).Draw(t, "mems"))
	limit := rapid.SampledFrom([]contract.Limit{0, 4096, 1 << 30, contract.Max})
	if rapid.Bool().Draw(t, "memory") {
		d.Memory = &contract.Memory{
			Min: limit.Draw(t, "min"), Low: limit.Draw(t, "low"), High: limit.Draw(t, "high"), Max: limit.Draw(t, "max"),
		}
	}
	for _, size := range []string{"2Mi", "1Gi"} {
		if rapid.Bool().Draw(t, size) {
			if d.Hugepages == nil {
				d.Hugepages = make(map[string]contract.Limit)
			}
			d.Hugepages[size] = rapid.SampledFrom([]contract.Limit{0, 1 << 30, contract.Max}).Draw(t, "pages")
		}
	}
	if !d.Mems.IsEmpty() && rapid.Bool().Draw(t, "policy") {
		d.MemoryPolicy = &contract.MemoryPolicy{Mode: rapid.SampledFrom(contract.MemoryPolicyModes()).Draw(t, "mode"), Nodes: d.Mems}
		d.Requires = d.MemoryPolicy.Features()
	}
	if rapid.Bool().Draw(t, "OOM score") {
		d.OOMScoreAdj = new(rapid.IntRange(-1000, 1000).Draw(t, "score"))
		d.Requires = append(d.Requires, contract.FeatureOOMScore)
	}
	return d
}
