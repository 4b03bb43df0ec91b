// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// claim returns a document with a claim of one request; parameters may be
// empty.
func claim(name, capacity, parameters string) string {
	out := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: %s}
spec:
  devices:
    requests: [{name: zone, exactly: {deviceClassName: dra.cpumem, capacity: {requests: {%s}}}}]
`, name, capacity)
	if parameters != "" {
		out += "    config: [{opaque: {driver: dra.cpumem, parameters: " +
			"{apiVersion: dra.cpumem/v1alpha1, kind: ClaimParameters, " + parameters + "}}}]\n"
	}
	return out + "---\n"
}

// pod returns a document with a pod of one container, which uses an existing
// claim.
func pod(name, claim, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  resourceClaims: [{name: c, resourceClaimName: %s}]
  containers: [{name: app, image: app, resources: {claims: [{name: c}]%s}}]
---
`, name, claim, more)
}

func run(t require.TestingT, m topology.Machine, c config.Config, documents ...string) simulation.Result {
	objects, err := simulation.Read(strings.NewReader(strings.Join(documents, "")), simulation.ChartClasses())
	require.NoError(t, err)
	result, err := simulation.Run(context.Background(), m, c, objects, simulation.OtherDrivers{})
	require.NoError(t, err)
	return result
}

func TestPodsInOrder(t *testing.T) {
	result := run(t, topologytest.T2().Machine(), config.Default(),
		claim("both", "cpu: 2, memory: 1Gi", ""),
		claim("joined", "cpu: 2", ""),
		pod("first", "joined", ""),
		pod("second", "joined", ", limits: {cpu: 1, memory: 1Gi}"),
		pod("third", "both", ""),
		pod("fourth", "both", ""),
		claim("huge", "cpu: 5", ""),
		claim("odd", "cpu: 3", "cpu: {wholeCores: true}"),
	)
	byName := make(map[string]simulation.Claim)
	var order []string
	for _, c := range result.Claims {
		byName[c.Name] = c
		order = append(order, c.Name)
	}
	require.Equal(t, []string{"joined", "both", "huge", "odd"}, order)

	joined := byName["joined"]
	require.Equal(t, simulation.Allocated, joined.Result)
	require.Equal(t, []string{"first", "second"}, joined.Pods)
	require.Equal(t, "0,4", joined.CPUs.String())
	require.Empty(t, joined.Reason)

	both := byName["both"]
	require.Equal(t, simulation.Allocated, both.Result)
	require.Equal(t, "pod fourth: the claim is prepared for other pods, "+
		"and memory, hugepages and cpuset partitions cannot be shared", both.Reason)
	require.Equal(t, "numa-1", both.Results[0].Zone, "one CPU was left on the first zone")
	require.Equal(t, "1", both.Results[0].Decision.Mems.String())

	require.Equal(t, simulation.Unschedulable, byName["huge"].Result)
	require.Equal(t, "cannot allocate all claims: request zone: cpu 5 wanted, at most 2 free (numa-1)", byName["huge"].Reason)
	require.Equal(t, simulation.Unschedulable, byName["odd"].Result)

	require.Equal(t, "1,3,5,7", result.CPUs.Shared.String())
	require.Equal(t, simulation.Usage{Used: 2, Capacity: 3}, result.Zones[0].CPU)
	require.Len(t, result.NodeState.Pods, 3, "the fourth is not let in")
}

// A claim lacks something if it has no zone, cannot be prepared, or cannot be used by each of its pods.
func TestLacking(t *testing.T) {
	for name, c := range map[string]struct {
		documents []string
		state     simulation.State
		lacking   int
	}{
		"allocated":         {[]string{claim("c", "cpu: 1", "")}, simulation.Allocated, 0},
		"shared":            {[]string{claim("c", "cpu: 1", ""), pod("a", "c", ""), pod("b", "c", "")}, simulation.Allocated, 0},
		"unschedulable":     {[]string{claim("c", "cpu: 99", "")}, simulation.Unschedulable, 1},
		"refused":           {[]string{claim("c", "", "")}, simulation.Refused, 1},
		"cannot be shared":  {[]string{claim("c", "cpu: 1, memory: 1Gi", ""), pod("a", "c", ""), pod("b", "c", "")}, simulation.Allocated, 1},
		"two of three lack": {[]string{claim("c", "cpu: 1", ""), claim("d", "cpu: 99", ""), claim("e", "", "")}, simulation.Allocated, 2},
	} {
		t.Run(name, func(t *testing.T) {
			result := run(t, topologytest.T2().Machine(), config.Default(), c.documents...)
			require.Equal(t, c.state, result.Claims[0].Result)
			require.Equal(t, c.lacking, result.Lacking())
		})
	}
}

func TestPodsOfOneClaimEach(t *testing.T) {
	result := run(t, topologytest.T2().Machine(), config.Default(), `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: worker, namespace: prod}
spec:
  spec:
    devices:
      requests:
      - name: zone
        firstAvailable:
        - {name: much, deviceClassName: dra.cpumem, capacity: {requests: {cpu: 4}}}
        - {name: less, deviceClassName: dra.cpumem, capacity: {requests: {cpu: 2, hugepages_2Mi: 2Mi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker, namespace: prod}
spec:
  replicas: 3
  selector: {}
  template:
    metadata: {}
    spec:
      resourceClaims: [{name: c, resourceClaimTemplateName: worker}]
      containers: [{name: app, resources: {claims: [{name: c, request: zone}]}}]
`)
	var got []string
	for _, c := range result.Claims {
		line := fmt.Sprintf("%s/%s %s", c.Namespace, c.Name, c.Result)
		for _, r := range c.Results {
			line += fmt.Sprintf(" %s %s %s", r.Request, r.Zone, r.Decision.CPUs)
		}
		got = append(got, line)
	}
	require.Equal(t, []string{
		"prod/worker-0-c allocated zone/much numa-1 2-3,6-7",
		"prod/worker-1-c allocated zone/less numa-0 0,4",
		"prod/worker-2-c unschedulable",
	}, got)
	require.Equal(t, "cannot allocate all claims: no zone that the selectors and constraints allow has all of the amounts free at once",
		result.Claims[2].Reason)
}

func TestWhatTheAllocatorSays(t *testing.T) {
	result := run(t, topologytest.T1().Machine(), config.Default(),
		strings.ReplaceAll(claim("classless", "cpu: 1", ""), "deviceClassName: dra.cpumem", "deviceClassName: gpu"),
		claim("second", "cpu: 1, hugepages_4Ki: 4Ki", ""))
	require.Contains(t, result.Claims[0].Reason, "could not retrieve device class gpu")
	require.Equal(t, `cannot allocate all claims: request zone: no zone has a capacity "hugepages_4Ki"`, result.Claims[1].Reason)
}

func TestConfigurationThatDoesNotFit(t *testing.T) {
	c := config.Default()
	c.ReservedCPUs = "99"
	_, err := simulation.Run(t.Context(), topologytest.T1().Machine(), c, simulation.Objects{}, simulation.OtherDrivers{})
	require.ErrorContains(t, err, "reservedCPUs 99")
}

// Claims of one container are decided together, as in one call of kubelet.
func TestClaimsOnOneContainer(t *testing.T) {
	const container = `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  resourceClaims: [{name: a, resourceClaimName: a}, {name: b, resourceClaimName: b}]
  containers: [{name: app, image: app, resources: {claims: [{name: a}, {name: b}], limits: {memory: 2Gi}}}]
---
`
	for isolation, want := range map[string][2]string{"isolated": {contract.PartitionRoot, contract.PartitionIsolated}, "none": {"", ""}} {
		result := run(t, topologytest.T2().Machine(), config.Default(),
			claim("a", "cpu: 1, memory: 1Gi", ""), claim("b", "cpu: 1, memory: 1Gi", "cpu: {isolation: "+isolation+"}"), container)
		var got [2]string
		for i, c := range result.Claims {
			require.Equal(t, simulation.Allocated, c.Result, c.Reason)
			got[i] = c.Results[0].Decision.Partition
			require.Equal(t, contract.Limit(1<<30), c.Results[0].Decision.Memory.Min, "both claims together are the container's limit")
		}
		require.Equal(t, want, got)
		require.Equal(t, "1-3,5-7", result.CPUs.Shared.String(), "whoever keeps others off")
	}
}

// A claim without a limit is throttled by what the machine has for pods: its
// memory without hugepages.
func TestUnlimitedMemory(t *testing.T) {
	result := run(t, topologytest.T2().Machine(), config.Default(),
		claim("c", "memory: 1Gi", "memory: {limit: unlimited, throttlingFactor: 1}"), pod("p", "c", ""))
	require.Equal(t, simulation.Allocated, result.Claims[0].Result, result.Claims[0].Reason)
	got := result.Claims[0].Results[0]
	require.Equal(t, contract.Memory{Low: 1 << 30, High: 26 << 30, Max: contract.Max}, *got.Decision.Memory)
	require.Equal(t, "unlimited", got.Parameters["memory.limit"])
}

// Run does not change its objects: a second run has the same result.
func TestRunTwice(t *testing.T) {
	objects, err := simulation.Read(strings.NewReader(claim("a", "cpu: 1", "")+claim("b", "cpu: 9", "")), simulation.ChartClasses())
	require.NoError(t, err)
	m := topologytest.T2().Machine()
	first, err := simulation.Run(t.Context(), m, config.Default(), objects, simulation.OtherDrivers{})
	require.NoError(t, err)
	second, err := simulation.Run(t.Context(), m, config.Default(), objects, simulation.OtherDrivers{})
	require.NoError(t, err)
	require.Equal(t, first, second)
}

// A set of claims on any machine: claimed CPUs are disjoint, of the claim's
// zone and as many as granted; the shared pool is the rest and never empty (I2,
// I7); the same input gives the same bytes (I8).
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := topologytest.Random(t).Machine()
		if !slices.ContainsFunc(m.NUMANodes, func(n topology.NUMANode) bool { return n.MemTotal > 0 }) {
			return
		}
		c := config.Default()
		c.GroupBy = rapid.SampledFrom([]string{"numanode", "machine"}).Draw(t, "groupBy")
		c.CPU.WholeCores = rapid.Bool().Draw(t, "wholeCores")
		var documents []string
		for i := range rapid.IntRange(1, 8).Draw(t, "claims") {
			parameters := rapid.SampledFrom([]string{
				"", "cpu: {placement: spread}", "cpu: {wholeCores: true}", "cpu: {wholeL3: true}",
			}).Draw(t, "parameters")
			documents = append(documents, claim(fmt.Sprintf("c%d", i), fmt.Sprintf("cpu: %d, memory: %dMi",
				rapid.IntRange(0, 12).Draw(t, "cpu"), rapid.IntRange(0, 2000).Draw(t, "memory")), parameters))
		}
		result := run(t, m, c, documents...)

		zones := make(map[string]contract.CPUSet)
		for _, z := range result.Zones {
			all := contract.CPUs()
			for _, l3 := range z.L3s {
				for _, core := range l3.Cores {
					all = all.Union(core)
				}
			}
			zones[z.Name] = all
			require.LessOrEqual(t, z.CPU.Used, z.CPU.Capacity)
			require.LessOrEqual(t, z.Memory.Used, z.Memory.Capacity)
		}
		held := contract.CPUs()
		for _, claim := range result.Claims {
			require.Equal(t, claim.Result != simulation.Allocated, claim.Reason != "")
			require.Equal(t, claim.Result == simulation.Unschedulable, len(claim.Results) == 0)
			if claim.Result != simulation.Allocated {
				require.Empty(t, claim.CPUs.String())
				continue
			}
			cpus := claim.CPUs
			require.True(t, held.Intersection(cpus).IsEmpty(), "%s", claim.Name)
			held = held.Union(cpus)
			require.True(t, cpus.IsSubsetOf(zones[claim.Results[0].Zone]))
			if granted, has := claim.Results[0].Consumed["cpu"]; has {
				require.Equal(t, granted, fmt.Sprint(cpus.Size()))
			}
		}
		shared := result.CPUs.Shared
		require.False(t, shared.IsEmpty())
		require.Equal(t, m.Online(), shared.Union(held))
		require.True(t, shared.Intersection(held).IsEmpty())

		var first, second bytes.Buffer
		require.NoError(t, json.NewEncoder(&first).Encode(result))
		require.NoError(t, json.NewEncoder(&second).Encode(run(t, m, c, documents...)))
		require.Equal(t, first.String(), second.String())
		require.NoError(t, result.Picture(&first, simulation.View{Width: rapid.IntRange(1, 200).Draw(t, "width")}))
	})
}
