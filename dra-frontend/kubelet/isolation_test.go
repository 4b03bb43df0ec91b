// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
)

const (
	isolationNone = `"cpu":{"isolation":"none"}`
	partition     = `"cpu":{"isolation":"partition"}`
	isolated      = `"cpu":{"isolation":"isolated"}`
	noKernel      = "nri-actuator has made no cpuset partition on this node (Linux 6.1.0)"
)

// partitions makes the actuator announce partitions, or not.
func (n *node) partitions(can bool) {
	features := []string{contract.FeaturePartition, contract.FeatureIsolated}
	n.features = slices.DeleteFunc(n.features, func(f string) bool { return slices.Contains(features, f) })
	if can {
		n.features = append(n.features, features...)
	}
}

// template makes the claim a claim from a template.
func template(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Controller: new(true)}}
	c.Annotations = map[string]string{resourceapi.PodResourceClaimAnnotation: "claim"}
	return c
}

func isolation(c *resourceapi.ResourceClaim, members string) *resourceapi.ResourceClaim {
	if members != "" {
		configure(c, opaque(members))
	}
	return c
}

// using returns a container that uses the claims.
func using(name string, runs bool, claims ...decision.ClaimReference) decision.Container {
	return decision.Container{Name: name, BesideMain: runs, Claims: claims}
}

func ref(claim string) decision.ClaimReference { return decision.ClaimReference{Claim: claim} }

// A CPU claim becomes a partition if node, claim and actuator want and can, and
// if one container has it alone.
func TestPartition(t *testing.T) {
	const pool, root, isolatedKind = "", contract.PartitionRoot, contract.PartitionIsolated
	one := ref("claim-1")
	main, side := using("main", true, one), using("side", true, one)
	type want struct{ kind, err string }
	for name, c := range map[string]struct {
		exclusivity, params string
		named, memory       bool
		old                 bool // the actuator cannot make partitions
		containers          []decision.Container
		class               string
		want                want
	}{
		"auto":                              {want: want{root, ""}},
		"auto, none asked for":              {params: isolationNone, want: want{pool, ""}},
		"auto, partition asked for":         {params: partition, want: want{root, ""}},
		"auto, isolated asked for":          {params: isolated, want: want{isolatedKind, ""}},
		"auto, another parameter":           {params: `"cpu":{"placement":"packed"}`, want: want{root, ""}},
		"auto, others may come":             {named: true, want: want{pool, ""}},
		"auto, named and with memory":       {named: true, memory: true, want: want{root, ""}},
		"auto, named and asked for":         {named: true, params: partition, want: want{root, ""}},
		"auto, runtime class":               {class: "kata", want: want{pool, ""}},
		"auto, runtime class and asked for": {class: "kata", params: isolated, want: want{isolatedKind, ""}},
		"auto, old kernel":                  {old: true, want: want{pool, ""}},
		"auto, old kernel and asked for": {
			old:    true,
			params: partition,
			want:   want{err: "cpu.isolation: partition, but it cannot be a cpuset partition: " + noKernel},
		},
		"auto, two containers": {containers: []decision.Container{main, side}, want: want{pool, ""}},
		"auto, two containers and asked for": {
			containers: []decision.Container{main, side},
			params:     isolated,
			want: want{err: "cpu.isolation: isolated, but it cannot be a cpuset partition: " +
				"2 containers that run at the same time use it (pod/main, pod/side)"},
		},
		"auto, init container before": {containers: []decision.Container{using("init", false, one), main}, want: want{root, ""}},
		"auto, two init containers only": {
			containers: []decision.Container{using("a", false, one), using("b", false, one), using("main", true)},
			want:       want{root, ""},
		},
		"auto, sidecar and init container after": {
			containers: []decision.Container{side, using("init", false, one), using("main", true)},
			want:       want{pool, ""},
		},
		"auto, init container before the sidecar": {
			containers: []decision.Container{using("init", false, one), side, using("main", true)},
			want:       want{root, ""},
		},
		"auto, sidecar and main": {containers: []decision.Container{side, main}, want: want{pool, ""}},
		"auto, no container":     {containers: []decision.Container{using("main", true)}, want: want{pool, ""}},
		"auto, no container and asked for": {
			containers: []decision.Container{using("main", true)},
			params:     partition,
			want:       want{err: "no container uses it"},
		},

		"pool":                 {exclusivity: "pool", want: want{pool, ""}},
		"pool, none asked for": {exclusivity: "pool", params: isolationNone, want: want{pool, ""}},
		"pool, partition asked for": {
			exclusivity: "pool",
			params:      partition,
			want: want{err: "cpu.isolation: partition, but it cannot be a cpuset partition: " +
				"exclusivity of this node's configuration is pool"},
		},
		"pool, isolated asked for": {
			exclusivity: "pool",
			params:      isolated,
			want: want{err: "cpu.isolation: isolated, but it cannot be a cpuset partition: " +
				"exclusivity of this node's configuration is pool"},
		},
		"pool, named and with class": {exclusivity: "pool", named: true, class: "kata", want: want{pool, ""}},

		"partition": {exclusivity: "partition", want: want{root, ""}},
		"partition, none asked for": {
			exclusivity: "partition",
			params:      isolationNone,
			want: want{err: "exclusivity of this node's configuration: partition, but it cannot be a cpuset partition: " +
				"cpu.isolation of the claim is none"},
		},
		"partition, isolated asked for": {exclusivity: "partition", params: isolated, want: want{isolatedKind, ""}},
		"partition, others may come":    {exclusivity: "partition", named: true, want: want{root, ""}},
		"partition, runtime class":      {exclusivity: "partition", class: "kata", want: want{root, ""}},
		"partition, old kernel": {
			exclusivity: "partition",
			old:         true,
			want:        want{err: "exclusivity of this node's configuration: partition, but it cannot be a cpuset partition: " + noKernel},
		},
		"partition, two containers": {
			exclusivity: "partition",
			containers:  []decision.Container{main, side},
			want:        want{err: "(pod/main, pod/side)"},
		},
		"partition, sidecar and init": {
			exclusivity: "partition",
			containers:  []decision.Container{side, using("init", false, one)},
			want:        want{err: "(pod/side, pod/init)"},
		},
		"partition, init and then main": {
			exclusivity: "partition",
			containers:  []decision.Container{using("init", false, one), main},
			want:        want{root, ""},
		},
		"partition, no container uses it": {
			exclusivity: "partition",
			containers:  []decision.Container{using("main", true)},
			want:        want{err: "no container uses it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.partitions(!c.old)
			if c.exclusivity != "" {
				n.config.Exclusivity = c.exclusivity
				n.restart()
			}
			before := n.state()
			amounts := capacity{"cpu": "2"}
			if c.memory {
				amounts["memory"] = "1Gi"
			}
			claim := isolation(n.claim(1, "numa-0", amounts), c.params)
			if !c.named {
				template(claim)
			}
			if c.containers == nil {
				c.containers = []decision.Container{main}
			}
			n.pod(decision.Pod{Containers: c.containers, RuntimeClass: c.class}, claim)
			_, err := n.prepare(claim)
			if c.want.err != "" {
				require.ErrorContains(t, err, c.want.err)
				require.ErrorContains(t, err, `request "zone" on device "numa-0"`)
				require.Empty(t, n.claimFiles())
				require.Equal(t, before, n.state())
				return
			}
			require.NoError(t, err)
			n.requirePartition(c.want.kind, 1)
			bytes, state := n.bytes(1), n.state()

			// The first answer stands if the actuator's features change (I8).
			n.partitions(c.old)
			n.restart()
			requireReconciled(t, n.driver)
			_, err = n.prepare(claim)
			require.NoError(t, err)
			require.Equal(t, bytes, n.bytes(1))
			require.Equal(t, state, n.state())
			require.NoError(t, n.unprepare(1))
			require.Equal(t, before.Shared, n.state().Shared)
			require.Empty(t, n.state().PartitionCPUs)
		})
	}
}

// requirePartition checks all that follows from the kind of claim number i. The
// claim has 2 CPUs of numa-0 and one pod, and the node has no other claim.
func (n *node) requirePartition(kind string, i int) {
	record, state := n.record(i), n.state()
	d := record.Results[0].Decision
	require.Equal(n.t, kind, d.Partition)
	if kind == "" {
		require.NotContains(n.t, d.Requires, contract.FeaturePartition)
		require.NotContains(n.t, record.Results[0].Parameters, "cpu.isolation")
		require.Equal(n.t, "2-7", state.Shared.CPUs.String())
		require.Empty(n.t, state.PartitionCPUs)
		return
	}
	require.Contains(n.t, d.Requires, contract.FeaturePartition, "an actuator that does not know of it must not apply it")
	require.Equal(n.t, map[string]string{contract.PartitionRoot: "partition", contract.PartitionIsolated: "isolated"}[kind],
		record.Results[0].Parameters["cpu.isolation"])
	require.False(n.t, record.Joinable, "a partition is one cgroup's")
	require.Equal(n.t, "0-7", state.Shared.CPUs.String(), "the kernel takes them out")
	require.Equal(n.t, map[string]contract.CPUSet{contract.LevelKubepods: contracttest.CPUs("0-1"),
		contract.LevelBurstable: contracttest.CPUs("0-1")}, state.PartitionCPUs)
	require.Equal(n.t, "0-1", state.Pods[record.Pods[0].UID].PartitionCPUs.String())
}

// A container is a partition with all of its CPUs or not at all, also if a
// chain of containers connects the claims. kinds are the kinds by claim, "" for
// the pool. refused are the errors of refused claims.
func TestPartitionsInOneContainer(t *testing.T) {
	none := map[int]string{1: isolationNone}
	both := []decision.Container{using("main", true, ref("claim-1"), ref("claim-2"))}
	apart := []decision.Container{using("a", true, ref("claim-1")), using("b", true, ref("claim-2"))}
	chain := []decision.Container{
		using("init-a", false, ref("claim-1"), ref("claim-2")),
		using("init-b", false, ref("claim-2"), ref("claim-3")),
		using("main", true, ref("claim-3")),
	}
	const root, isolatedKind = contract.PartitionRoot, contract.PartitionIsolated
	for name, c := range map[string]struct {
		params     map[int]string
		named      []int
		containers []decision.Container
		kinds      map[int]string
		refused    map[int]string
	}{
		"both": {containers: both, kinds: map[int]string{1: root, 2: root}},
		"one is isolated": {
			containers: both,
			params:     map[int]string{2: isolated},
			kinds:      map[int]string{1: root, 2: isolatedKind},
		},
		"one is to be of the pool":        {containers: both, params: none, kinds: map[int]string{1: "", 2: ""}},
		"one is to be of the pool, apart": {containers: apart, params: none, kinds: map[int]string{1: "", 2: root}},
		"others may come to one":          {containers: both, named: []int{2}, kinds: map[int]string{1: "", 2: ""}},
		"others may come to one, the other is asked for": {
			containers: both,
			named:      []int{1},
			params:     map[int]string{2: partition},
			kinds:      map[int]string{1: ""},
			refused: map[int]string{2: "container pod/main also uses claim claim-1, request zone, " +
				"which is no partition: more pods may use the claim"},
		},
		"two containers use one": {
			containers: []decision.Container{using("main", true, ref("claim-1"), ref("claim-2")), using("side", true, ref("claim-2"))},
			kinds:      map[int]string{1: "", 2: ""},
		},
		"by way of another container": {
			containers: chain,
			params:     map[int]string{3: isolationNone},
			kinds:      map[int]string{1: "", 2: "", 3: ""},
		},
		"by way of another container, asked for": {
			containers: chain,
			params:     map[int]string{1: isolated, 3: isolationNone},
			kinds:      map[int]string{2: "", 3: ""},
			refused: map[int]string{1: "container pod/init-a also uses claim claim-2, request zone, which is no partition: " +
				"container pod/init-b also uses claim claim-3, request zone, which is no partition: " +
				"cpu.isolation of the claim is none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}} {
				n := newNode(t)
				n.partitions(true)
				var claims []*resourceapi.ResourceClaim
				for _, i := range order {
					if _, there := c.kinds[i]; !there && c.refused[i] == "" {
						continue
					}
					claim := isolation(n.claim(i, "numa-0", capacity{"cpu": "1"}), c.params[i])
					if !slices.Contains(c.named, i) {
						template(claim)
					}
					claims = append(claims, claim)
				}
				n.pod(decision.Pod{Containers: c.containers}, claims...)
				results, err := n.driver.PrepareResourceClaims(t.Context(), claims)
				require.NoError(t, err)
				for i, want := range c.refused {
					require.ErrorContains(t, results[types.UID(uid(i))].Err, want)
				}
				require.Len(t, n.claimFiles(), len(c.kinds))
				for i, kind := range c.kinds {
					require.NoError(t, results[types.UID(uid(i))].Err)
					require.Equal(t, kind, n.record(i).Results[0].Decision.Partition, "claim %d", i)
				}
			}
		})
	}
}

// Each request of a claim has a kind of its own. A request that demands a
// partition keeps later pods from the whole claim.
func TestPartitionsOfRequests(t *testing.T) {
	zone, other := decision.ClaimReference{Claim: "claim-1", Request: "zone"}, decision.ClaimReference{Claim: "claim-1", Request: "other"}
	for name, c := range map[string]struct {
		params     []resourceapi.DeviceAllocationConfiguration
		named      bool
		containers []decision.Container
		kinds      [2]string
		joinable   bool
	}{
		"one container": {containers: []decision.Container{using("main", true, ref("claim-1"))}, kinds: [2]string{"root", "root"}},
		"one each": {
			containers: []decision.Container{using("a", true, zone), using("b", true, other)},
			kinds:      [2]string{"root", "root"},
		},
		"one is shared": {
			containers: []decision.Container{using("a", true, zone), using("b", true, other), using("c", true, other)},
			kinds:      [2]string{"root", ""},
		},
		"both meet": {containers: []decision.Container{using("a", true, zone, other), using("b", true, other)}, kinds: [2]string{"", ""}},
		"named": {
			named:      true,
			containers: []decision.Container{using("a", true, zone), using("b", true, other)},
			kinds:      [2]string{"", ""},
			joinable:   true,
		},
		"named, one asked": {
			named:      true,
			params:     opaque(isolated, "zone"),
			containers: []decision.Container{using("main", true, zone, other)},
			kinds:      [2]string{"isolated", "root"},
		},
		"named, one asked, one of the pool": {
			named:      true,
			params:     append(opaque(isolated, "zone"), opaque(isolationNone, "other")...),
			containers: []decision.Container{using("a", true, zone), using("b", true, other)},
			kinds:      [2]string{"isolated", ""},
		},
		// The subrequest's parameters win.
		"a subrequest's": {
			params:     append(opaque(isolationNone, "other"), opaque(isolated, "other/large")...),
			containers: []decision.Container{using("a", true, zone), using("b", true, other)},
			kinds:      [2]string{"root", "isolated"},
		},
		"another subrequest's": {
			params:     opaque(isolationNone, "other/small"),
			containers: []decision.Container{using("a", true, zone), using("b", true, other)},
			kinds:      [2]string{"root", "root"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.partitions(true)
			claim := n.claim(1, "numa-0", capacity{"cpu": "1"})
			second := *result(claim).DeepCopy()
			second.Request, second.Device = "other/large", "numa-1"
			claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, second)
			configure(claim, c.params)
			if !c.named {
				template(claim)
			}
			n.pod(decision.Pod{Containers: c.containers}, claim)
			_, err := n.prepare(claim)
			require.NoError(t, err)
			record := n.record(1)
			require.Equal(t, c.kinds, [2]string{record.Results[0].Decision.Partition, record.Results[1].Decision.Partition})
			require.Equal(t, c.joinable, record.Joinable)
			if c.kinds == [2]string{"root", ""} {
				require.Equal(t, "0-1,3-7", n.state().Shared.CPUs.String(), "the pool leaves out what is no partition")
				require.Equal(t, "0", n.state().PartitionCPUs[contract.LevelKubepods].String())
			}
		})
	}
}
