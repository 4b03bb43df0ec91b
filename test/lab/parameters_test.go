// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// A19: the parameters of class, claim and subrequest, from the allocator to the
// container's spec and cgroup.
func TestParameters(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Class: `"cpu":{"placement":"spread"},"memory":{"protection":"low"}`,
	})
	both := map[string]string{"cpu": "2", "memory": "1Gi"}
	for name, c := range map[string]struct {
		request lab.Request
		cpus    string
		want    map[string]string
	}{
		"class": {lab.Request{Capacity: both}, "2-3", map[string]string{"memory.low": "1073741824", "memory.max": "1073741824"}},
		"class and claim": {
			request: lab.Request{Capacity: both, Parameters: `"cpu":{"placement":"packed"},"memory":{"limit":"2Gi"}`},
			cpus:    "2,6",
			want:    map[string]string{"memory.low": "1073741824", "memory.max": "2147483648"},
		},
		"subrequest": {lab.Request{Parameters: `"cpu":{"placement":"packed"}`, First: []lab.Request{
			{Name: "large", Capacity: map[string]string{"cpu": "64"}, Parameters: `"memory":{"limit":"9Gi"}`},
			{Name: "small", Capacity: both, Parameters: `"cpu":{"wholeCores":true},"memory":{"protection":"min"}`, Zone: "numa-1"},
		}}, "2,6", map[string]string{"memory.min": "1073741824", "memory.low": "0", "memory.max": "1073741824"}},
		"subrequest over its request": {lab.Request{Parameters: `"cpu":{"placement":"spread"}`, First: []lab.Request{
			{Name: "small", Capacity: both, Parameters: `"cpu":{"placement":"packed"}`, Zone: "numa-1"},
		}}, "2,6", nil},
		"memory policy": {lab.Request{Capacity: both, Parameters: `"memory":{"policy":"interleave"}`}, "2-3", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.request.Name, c.request.Zone = "r", "numa-1"
			p := n.Pod("p", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{n.Claim("c", c.request)}})
			ctr := start(t, n, p)[0]
			require.Equal(t, c.cpus, ctr.CPUs())
			for file, value := range c.want {
				require.Equal(t, value, ctr.ReadCgroup(file), file)
			}
			if name == "memory policy" {
				require.Equal(t, "MPOL_INTERLEAVE", string(ctr.Spec.Linux.MemoryPolicy.Mode))
				require.Equal(t, "1", ctr.Spec.Linux.MemoryPolicy.Nodes)
			}
			require.NoError(t, n.Remove(p))
			n.Check()
		})
	}
}

// A19, I3: an impossible request is refused and holds nothing. The error says what is
// possible.
func TestParametersRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	for name, c := range map[string]struct {
		cpu, parameters, want string
	}{
		"three of whole cores": {"3", `"cpu":{"wholeCores":true}`, "3 CPUs do not make up whole free cores of the zone: claim 2 or 4"},
		"half an L3":           {"2", `"cpu":{"wholeL3":true}`, "claim 4"},
		"no such cores":        {"2", `"cpu":{"cores":"efficiency"}`, "this machine has no such cores"},
		"A78 hugepages without limit": {
			cpu:        "2",
			parameters: `"hugepages":{"limits":"unlimited"}`,
			want:       "hugepages.limits: unlimited is not a claim's to ask for",
		},
		"unknown field": {"2", `"cpu":{"pinned":true}`, `unknown field "cpu.pinned"`},
	} {
		t.Run(name, func(t *testing.T) {
			claim := n.Claim("c", lab.Request{Name: "r", Zone: "numa-1", Capacity: cpu(c.cpu), Parameters: c.parameters})
			p := n.Pod("p", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
			require.True(t, n.Allocate(p))
			require.ErrorContains(t, n.Prepare(p), c.want)
			require.Empty(t, n.Records())
			require.Equal(t, "0-7", n.Pool())
			require.NoError(t, n.Remove(p))
		})
	}
}

// I5: on a runtime without memory policies, a claim that needs one is refused.
func TestMemoryPolicyOnAnOldRuntime(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, RuntimeVersion: "v2.2.7"})
	claim := n.Claim("c", lab.Request{Name: "r", Capacity: map[string]string{"memory": "1Gi"}, Parameters: `"memory":{"policy":"bind"}`})
	p := n.Pod("p", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
	require.True(t, n.Allocate(p))
	require.ErrorContains(t, n.Prepare(p), `its parameters need "`+contract.FeatureMemoryPolicy+
		`", which this node cannot do: the runtime is containerd v2.2.7`)
}
