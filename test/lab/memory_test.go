// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

func throttled(c *config.Config) { c.MemoryQoS.ThrottlingFactor = new(0.5) }

// A41: memory.high and the other memory values of a container with one claim or
// several, in its spec, its cgroup and its pod's cgroup.
func TestA41_MemoryOfAContainer(t *testing.T) {
	t.Parallel()
	quarter := lab.Request{Name: "r", Zone: "numa-0", Capacity: map[string]string{"memory": "256Mi"}}
	rest := lab.Request{Name: "s", Zone: "numa-1", Capacity: map[string]string{"memory": "768Mi"}}
	without := func(r lab.Request) lab.Request {
		r.Parameters = `"memory":{"limit":"unlimited"}`
		return r
	}
	two := func(a, b lab.Request) func(n *lab.Node) []string {
		return func(n *lab.Node) []string { return []string{n.Claim("c", a), n.Claim("d", b)} }
	}
	type files = map[string]string
	for name, c := range map[string]struct {
		claims          func(n *lab.Node) []string
		limit           string
		container, pods files
	}{
		"one claim and a limit": {func(n *lab.Node) []string {
			return []string{n.Claim("c", lab.Request{Name: "r", Capacity: map[string]string{"memory": "1Gi"}})}
		}, "2Gi", files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "1610612736", "memory.max": "2147483648"},
			files{"memory.low": "1073741824"}},
		"two claims and a limit": {two(quarter, rest), "2Gi",
			files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "1610612736", "memory.max": "2147483648"},
			files{"memory.low": "1073741824"}},
		"two requests and a limit": {func(n *lab.Node) []string { return []string{n.Claim("c", quarter, rest)} }, "2Gi",
			files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "1610612736", "memory.max": "2147483648"},
			files{"memory.low": "1073741824"}},
		"two claims that are the limit": {two(quarter, rest), "1Gi",
			files{"memory.min": "1073741824", "memory.low": "0", "memory.high": "max", "memory.max": "1073741824"},
			files{"memory.min": "1073741824"}},
		"two claims": {two(quarter, rest), "",
			files{"memory.min": "1073741824", "memory.low": "0", "memory.high": "max", "memory.max": "1073741824"},
			files{"memory.min": "1073741824"}},
		// memory.high is halfway between 1Gi and the node's 24Gi.
		"no limit at all": {two(without(quarter), without(rest)), "",
			files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "13421772800", "memory.max": "max"},
			files{"memory.low": "1073741824"}},
		"no limit of one claim": {two(quarter, without(rest)), "",
			files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "13421772800", "memory.max": "max"},
			files{"memory.low": "1073741824"}},
		"no limit but its own": {two(without(quarter), without(rest)), "2Gi",
			files{"memory.min": "0", "memory.low": "1073741824", "memory.high": "1610612736", "memory.max": "2147483648"},
			files{"memory.low": "1073741824"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Configure: throttled})
			p := n.Pod("p", lab.Burstable, lab.ContainerSpec{Name: "main", Claims: c.claims(n), MemoryLimit: c.limit})
			ctr := start(t, n, p)[0]
			for file, want := range c.container {
				require.Equal(t, want, ctr.ReadCgroup(file), file)
				if file != "memory.max" {
					require.Equal(t, want, ctr.Spec.Linux.Resources.Unified[file], "%s in the spec", file)
				}
			}
			require.Equal(t, contract.Files(c.pods), n.State().Pods[p.UID].Cgroup)
			n.Check()
			// I8.
			before := n.Records()
			n.RestartFrontend()
			n.Ready()
			n.RestartKubelet()
			require.NoError(t, n.Prepare(p))
			require.Equal(t, before, n.Records())
			require.NoError(t, n.Remove(p))
			n.Check()
		})
	}
}

// A13, A41: the sum of a container's claims must fit into its own limit.
func TestA41_ClaimsAboveTheLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	request := lab.Request{Name: "r", Capacity: map[string]string{"memory": "768Mi"}}
	p := n.Pod("p", lab.Burstable, lab.ContainerSpec{
		Name: "main", MemoryLimit: "1Gi", Claims: []string{n.Claim("c", request), n.Claim("d", request)},
	})
	require.True(t, n.Allocate(p))
	err := n.Prepare(p)
	require.ErrorContains(t, err, "claim c request r: 805306368")
	require.ErrorContains(t, err, "claim d request r: 805306368")
	require.ErrorContains(t, err, "the container's memory limit of 1073741824 bytes is below the claimed 1610612736 bytes")
	require.Empty(t, n.Records())
	n.Check()
}

// On a kernel that can hang tasks at memory.high, only claims with memory.high are
// refused.
func TestThrottlingOnAnOldKernel(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, OSRelease: "5.4.0-100-generic"})
	request := lab.Request{Name: "r", Capacity: map[string]string{"memory": "1Gi"}, Parameters: `"memory":{"limit":"2Gi"}`}
	p := podWith(n, "plain", request)
	require.Equal(t, "max", start(t, n, p)[0].ReadCgroup("memory.high"))
	request.Parameters = `"memory":{"limit":"2Gi","throttlingFactor":0.5}`
	p = podWith(n, "throttled", request)
	require.True(t, n.Allocate(p))
	require.ErrorContains(t, n.Prepare(p), "memory.throttlingFactor: 0.5, but kernel 5.4.0-100-generic can hang tasks at memory.high")
	require.Len(t, n.Records(), 1)
	n.Check()
}

// A42: hugepage limits in the OCI spec, the container's cgroup and the pod's cgroup:
// claimed sizes follow hugepages.limits, other sizes keep kubelet's limits.
func TestA42_Hugepages(t *testing.T) {
	t.Parallel()
	type amounts = map[string]string
	for name, c := range map[string]struct {
		// claims are one container's claims; params is their class's
		// hugepages.limits.
		claims []amounts
		params string
		own    amounts
		// container and pod have the cgroups' limits by page size. spec has the
		// limits that the actuator adds to the container's spec.
		spec, container, pod amounts
	}{
		"no claim": {nil, "", nil, amounts{}, amounts{"2MB": "0", "1GB": "0"}, amounts{"2MB": "0", "1GB": "0"}},
		"no claim, a limit of its own": {
			claims:    nil,
			params:    "",
			own:       amounts{"2Mi": "4Mi"},
			spec:      amounts{},
			container: amounts{"2MB": "4194304", "1GB": "0"},
			pod:       amounts{"2MB": "4194304", "1GB": "0"},
		},
		"one size": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "",
			own:       nil,
			spec:      amounts{"2MB": "4194304"},
			container: amounts{"2MB": "4194304", "1GB": "0"},
			pod:       amounts{"2MB": "4194304", "1GB": "0"},
		},
		"two sizes": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"}},
			params:    "",
			own:       nil,
			spec:      amounts{"2MB": "4194304", "1GB": "1073741824"},
			container: amounts{"2MB": "4194304", "1GB": "1073741824"},
			pod:       amounts{"2MB": "4194304", "1GB": "1073741824"},
		},
		"unlimited": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "unlimited",
			own:       nil,
			spec:      amounts{"2MB": "max"},
			container: amounts{"2MB": "max", "1GB": "0"},
			pod:       amounts{"2MB": "max", "1GB": "0"},
		},
		"unchanged": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "unchanged",
			own:       nil,
			spec:      amounts{},
			container: amounts{"2MB": "0", "1GB": "0"},
			pod:       amounts{"2MB": "0", "1GB": "0"},
		},
		"unchanged, a limit of its own": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "unchanged",
			own:       amounts{"2Mi": "6Mi"},
			spec:      amounts{},
			container: amounts{"2MB": "6291456", "1GB": "0"},
			pod:       amounts{"2MB": "6291456", "1GB": "0"},
		},
		"mirrored": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "claim",
			own:       amounts{"2Mi": "4Mi"},
			spec:      amounts{"2MB": "4194304"},
			container: amounts{"2MB": "4194304", "1GB": "0"},
			pod:       amounts{"2MB": "8388608", "1GB": "0"},
		},
		"a limit of its own above the claim": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "claim",
			own:       amounts{"2Mi": "6Mi"},
			spec:      amounts{"2MB": "6291456"},
			container: amounts{"2MB": "6291456", "1GB": "0"},
			pod:       amounts{"2MB": "10485760", "1GB": "0"},
		},
		"a limit of its own of another size": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}},
			params:    "claim",
			own:       amounts{"1Gi": "1Gi"},
			spec:      amounts{"2MB": "4194304"},
			container: amounts{"2MB": "4194304", "1GB": "1073741824"},
			pod:       amounts{"2MB": "4194304", "1GB": "1073741824"},
		},
		"two claims, mirrored": {
			claims:    []amounts{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "2Mi"}},
			params:    "claim",
			own:       amounts{"2Mi": "6Mi"},
			spec:      amounts{"2MB": "6291456"},
			container: amounts{"2MB": "6291456", "1GB": "0"},
			pod:       amounts{"2MB": "12582912", "1GB": "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var class string
			if c.params != "" {
				class = `"hugepages":{"limits":"` + c.params + `"}`
			}
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Class: class})
			spec := lab.ContainerSpec{Name: "main", Hugepages: c.own}
			for i, capacity := range c.claims {
				spec.Claims = append(spec.Claims, n.Claim(string(rune('a'+i)), lab.Request{Name: "r", Zone: "numa-0", Capacity: capacity}))
			}
			p := n.Pod("p", lab.Burstable, spec)
			ctr := start(t, n, p)[0]
			inSpec := make(amounts)
			for file, value := range ctr.Spec.Linux.Resources.Unified {
				if size, ok := strings.CutPrefix(file, "hugetlb."); ok {
					size, _, _ = strings.Cut(size, ".")
					inSpec[size] = value
				}
			}
			require.Equal(t, c.spec, inSpec)
			for _, size := range []string{"2MB", "1GB"} {
				for _, file := range []string{"hugetlb." + size + ".max", "hugetlb." + size + ".rsvd.max"} {
					require.Equal(t, c.container[size], ctr.ReadCgroup(file), "container, %s", file)
					require.Equal(t, c.pod[size], n.ReadCgroup("kubepods/burstable/pod"+p.UID, file), "pod, %s", file)
				}
			}
			n.Check()
			require.NoError(t, n.Remove(p))
			n.Check()
		})
	}
}
