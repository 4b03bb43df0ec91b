// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
)

// inOnePod returns the claims for one pod, whose container uses all of them.
func inOnePod(claims ...decision.Claim) []decision.Claim {
	pod := claims[0].Pods[0]
	var uses []decision.ClaimReference
	for _, c := range claims {
		uses = append(uses, decision.ClaimReference{Claim: c.Name})
	}
	pod.Containers = []decision.Container{{Name: "main", BesideMain: true, Claims: uses}}
	for i := range claims {
		claims[i].Pods = []decision.Pod{pod}
	}
	return claims
}

func decideOne(t *testing.T, in decision.Input) contract.ResultRecord {
	outcomes := decision.Decide(in)
	require.NoError(t, outcomes[0].Err)
	return outcomes[0].Record.Results[0]
}

// What a claim does not ask for neither refuses it nor is in its record.
func TestNotAskedFor(t *testing.T) {
	factor := 0.5
	node := testNode(t)
	zone := node.Inventory.Zones["numa-0"]

	t.Run("CPUs of a zone without memory", func(t *testing.T) {
		node := node
		node.Inventory.Zones = map[string]decision.Zone{"numa-0": {CPUs: zone.CPUs}}
		got := decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{claim(1, "numa-0", 1, 0)}})
		require.Equal(t, 1, got.Decision.CPUs.Size())
	})
	t.Run("memory.high without memory", func(t *testing.T) {
		node := node
		node.NoMemoryHigh = errors.New("the kernel is too old")
		c := claim(1, "numa-0", 1, 0)
		c.Results[0].Settings.Memory.Factor = &factor
		decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{c}})
		c = withMemory(t, claim(1, "numa-0", 0, gi), 0, &factor)
		require.ErrorContains(t, decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{c}})[0].Err,
			"memory.throttlingFactor: 0.5, but the kernel is too old")
	})
	t.Run("kind of cores without CPUs", func(t *testing.T) {
		c := claim(1, "numa-0", 0, gi)
		c.Results[0].Settings.CPU.Cores = "performance"
		got := decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{c}})
		require.True(t, got.Decision.CPUs.IsEmpty())
	})
	t.Run("parameters of hugepages", func(t *testing.T) {
		c := claim(1, "numa-0", 1, 0)
		require.NotContains(t, decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{c}}).Parameters, "hugepages.limits")
		c.Results[0].Amounts.Hugepages = map[string]int64{"2Mi": 2 << 20}
		require.Contains(t, decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{c}}).Parameters, "hugepages.limits")
	})
	t.Run("OOM score of a container that asks for neither CPUs nor memory", func(t *testing.T) {
		node := node
		node.MemoryCapacity, node.Actuator.Features = 16*gi, []string{contract.FeatureOOMScore}
		c := claim(1, "numa-0", 0, 0)
		c.Results[0].Amounts.Hugepages = map[string]int64{"2Mi": 2 << 20}
		d := decideOne(t, decision.Input{Node: node, Claims: []decision.Claim{c}}).Decision
		require.Nil(t, d.OOMScoreAdj, "kubelet's own value is the worst one, too")
		require.Empty(t, d.Requires)
	})
}

// A45: only the values of results without a limit depend on the allocatable memory. All
// results of a container add up to the value of one claim of the sum.
func TestLimitedBesideUnlimited(t *testing.T) {
	factor := 0.5
	high := func(first, second contract.Limit) (contract.Limit, contract.Limit) {
		claims := inOnePod(
			withMemory(t, claim(1, "numa-0", 0, gi), first, &factor), withMemory(t, claim(2, "numa-0", 0, gi), second, &factor))
		outcomes := decision.Decide(decision.Input{Node: testNode(t), Claims: claims, AllocatableMemory: 10 * gi})
		require.NoError(t, outcomes[0].Err)
		require.NoError(t, outcomes[1].Err)
		return outcomes[0].Record.Results[0].Decision.Memory.High, outcomes[1].Record.Results[0].Decision.Memory.High
	}
	const limit = 3*gi + 4096 // half of it above the claimed memory is no whole page
	unlimited, limited := high(contract.Max, limit)
	require.EqualValues(t, 2*gi, limited, "1 GiB and half of the 2 GiB to the limit")
	require.EqualValues(t, 4*gi, unlimited, "2 GiB and half of the 8 GiB to the allocatable memory, less the 2 GiB of the other claim")
	limited, again := high(limit, contract.Max)
	require.EqualValues(t, 2*gi, limited)
	require.Equal(t, unlimited, again)
}

// A claim of the same name in another namespace is another claim.
func TestClaimsOfNamespaces(t *testing.T) {
	mine, foreign := claim(1, "numa-0", 0, gi), claim(2, "numa-0", 0, 2*gi)
	foreign.Namespace, foreign.Name = "other", mine.Name
	mine.Pods[0].MemoryLimit = gi
	got := decideOne(t, decision.Input{Node: testNode(t), Claims: []decision.Claim{mine}, OtherClaims: []decision.Claim{foreign}})
	require.EqualValues(t, gi, got.Decision.Memory.Min)
}

func TestMemoryLimits(t *testing.T) {
	t.Run("a pod's limit of exactly the claimed memory", func(t *testing.T) {
		c := claim(1, "numa-0", 0, gi)
		c.Pods[0].MemoryLimit = gi
		decideOne(t, decision.Input{Node: testNode(t), Claims: []decision.Claim{c}})
	})
	t.Run("a pod's limit below the claimed memory", func(t *testing.T) {
		claims := inOnePod(claim(1, "numa-0", 0, gi), claim(2, "numa-0", 1, 0))
		for i := range claims {
			claims[i].Pods[0].MemoryLimit = gi - 4096
		}
		outcomes := decision.Decide(decision.Input{Node: testNode(t), Claims: claims})
		require.ErrorContains(t, outcomes[0].Err, "the memory limit of pod pod-1 of 1073737728 bytes is below "+
			"the claimed 1073741824 bytes (claim claim-1 request r: 1073741824): raise the limit or drop it")
		require.NoError(t, outcomes[1].Err)
	})
	t.Run("containers with a limit and without", func(t *testing.T) {
		c := claim(1, "numa-0", 0, gi)
		uses := c.Pods[0].Containers[0].Claims
		c.Pods[0].Containers = []decision.Container{
			{Name: "setup", Init: true, Claims: uses, MemoryLimit: 2 * gi}, {Name: "main", BesideMain: true, Claims: uses},
		}
		outcome := decision.Decide(decision.Input{Node: testNode(t), Claims: []decision.Claim{c}})[0]
		require.ErrorContains(t, outcome.Err, "some have a memory limit of their own (pod-1/setup) and some have none (pod-1/main)")
	})
}

// partitioned returns the claim with a demand for a partition.
func partitioned(c decision.Claim) decision.Claim {
	c.OwnedByPod = true
	c.Results[0].Settings.Isolation = parameters.IsolationPartition
	return c
}

func partitionNode(t *testing.T) decision.Node {
	node := testNode(t)
	node.Actuator.Features = []string{contract.FeaturePartition}
	return node
}

// The reason for a refused partition is the one that the user can mend.
func TestPartitionReasons(t *testing.T) {
	t.Run("the claim before the node", func(t *testing.T) {
		c := partitioned(claim(1, "numa-0", 1, 0))
		c.Pods = append(c.Pods, decision.Pod{Name: "pod-2", PodRecord: contract.PodRecord{UID: claim(2, "numa-0", 1, 0).UID}})
		outcome := decision.Decide(decision.Input{Node: testNode(t), Claims: []decision.Claim{c}})[0]
		require.ErrorContains(t, outcome.Err, "it cannot be a cpuset partition: 2 pods have the claim")
	})
	for name, c := range map[string]struct {
		known bool
		want  string
	}{
		"of a prepared claim of the same container":               {known: true, want: "cpu.isolation of the claim is none"},
		"of a prepared claim whose settings are not in this call": {want: "it was prepared without a partition"},
	} {
		t.Run(name, func(t *testing.T) {
			claims := inOnePod(claim(1, "numa-0", 1, 0), partitioned(claim(2, "numa-0", 1, 0)))
			claims[0].Results[0].Settings.Isolation = parameters.IsolationNone
			prepared := decision.Decide(decision.Input{Node: partitionNode(t), Claims: claims[:1]})[0]
			require.NoError(t, prepared.Err)
			in := decision.Input{Node: partitionNode(t), Claims: claims[1:], Prepared: []contract.ClaimRecord{prepared.Record}}
			if c.known {
				in.OtherClaims = claims[:1]
			}
			require.ErrorContains(t, decision.Decide(in)[0].Err,
				"container pod-1/main also uses claim claim-1, request r, which is no partition: "+c.want)
		})
	}
}

// A prepared claim counts until its claim is decided anew, or a claim of its name and
// namespace is there: then the prepared claim is being released.
func TestPreparedClaimOfTheSameName(t *testing.T) {
	for name, c := range map[string]struct {
		namespace string
		cpus      int
		memory    int64
		refused   bool
	}{
		"the same namespace":              {namespace: "ns", cpus: 1},
		"the same namespace, memory only": {namespace: "ns", memory: gi},
		"another namespace":               {namespace: "other", cpus: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			claims := inOnePod(claim(1, "numa-0", 1, 0), partitioned(claim(2, "numa-0", 1, 0)))
			claims[0].Results[0].Settings.Isolation = parameters.IsolationNone
			prepared := decision.Decide(decision.Input{Node: partitionNode(t), Claims: claims[:1]})[0]
			require.NoError(t, prepared.Err)
			next := partitioned(claim(3, "numa-1", c.cpus, c.memory))
			next.Namespace, next.Name, next.Pods = c.namespace, claims[0].Name, claims[1].Pods
			outcome := decision.Decide(decision.Input{
				Node: partitionNode(t), Claims: []decision.Claim{claims[1]}, OtherClaims: []decision.Claim{next},
				Prepared: []contract.ClaimRecord{prepared.Record},
			})[0]
			if c.refused {
				require.ErrorContains(t, outcome.Err, "which is no partition: it was prepared without a partition")
				return
			}
			require.NoError(t, outcome.Err)
			require.Equal(t, contract.PartitionRoot, outcome.Record.Results[0].Decision.Partition)
		})
	}
}

// Memory that containers would have at the same time is refused, and the message names
// them.
func TestContainersAtTheSameTime(t *testing.T) {
	type containers = []decision.Container
	side := decision.Container{Name: "side", Init: true, BesideMain: true}
	setup := decision.Container{Name: "setup", Init: true}
	more := decision.Container{Name: "more", Init: true}
	main := decision.Container{Name: "main", BesideMain: true}
	for name, c := range map[string]struct {
		pods []containers
		err  string
	}{
		"one after the other": {pods: []containers{{setup, more, main}}},
		"init containers of two pods": {
			pods: []containers{{setup}, {setup}},
			err:  "memory and hugepages cannot be shared, and the claim is reserved for 2 pods (pod-1, pod-2)",
		},
		// The cgroup of such a pod would get the protection of the memory as well.
		"a pod that only lists the claim": {pods: []containers{{main}, {}}, err: "the claim is reserved for 2 pods (pod-1, pod-2)"},
		"after a sidecar": {
			pods: []containers{{side, setup, more}},
			err:  "3 containers that run at the same time use it (pod-1/side, pod-1/setup, pod-1/more)",
		},
		"as many as the message names": {pods: []containers{{main, main, main, main, main, main}}, err: "pod-1/main, pod-1/main):"},
		"more than the message names":  {pods: []containers{{main, main, main, main, main, main, main}}, err: "pod-1/main and 1 more):"},
	} {
		t.Run(name, func(t *testing.T) {
			request := claim(1, "numa-0", 0, gi)
			request.Pods = nil
			for i, list := range c.pods {
				pod := claim(i+1, "numa-0", 0, gi).Pods[0]
				pod.Containers = nil
				for _, container := range list {
					container.Claims = []decision.ClaimReference{{Claim: request.Name}}
					pod.Containers = append(pod.Containers, container)
				}
				request.Pods = append(request.Pods, pod)
			}
			outcome := decision.Decide(decision.Input{Node: testNode(t), Claims: []decision.Claim{request}})[0]
			if c.err == "" {
				require.NoError(t, outcome.Err)
				return
			}
			require.ErrorContains(t, outcome.Err, c.err)
		})
	}
}
