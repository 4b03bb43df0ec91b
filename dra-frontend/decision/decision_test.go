// SPDX-License-Identifier: Apache-2.0

package decision_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/parameters"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

const gi = 1 << 30

// testNode is a node with 2 zones of 4 CPUs, which makes no partitions.
func testNode(t require.TestingT) decision.Node {
	offered, err := config.Default().Divide(topologytest.T3().Machine())
	require.NoError(t, err)
	return decision.Node{SlicePool: "node", BootID: "boot", Inventory: decision.InventoryOf(config.Default(), offered, "boot")}
}

// claim returns claim number i with one result, for a pod of its own.
func claim(i int, zone string, cpus int, memory int64) decision.Claim {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	result := resourceapi.DeviceRequestAllocationResult{
		Request: "r", Driver: contract.Vendor, Pool: "node", Device: zone,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
			"cpu": *resource.NewQuantity(int64(cpus), resource.DecimalSI), "memory": *resource.NewQuantity(memory, resource.BinarySI),
		},
	}
	name := fmt.Sprint("claim-", i)
	object := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{result}},
		}},
	}
	c := decision.Read(object, []resourceapi.DeviceRequestAllocationResult{result}, parameters.Defaults(config.Default(), 4096))
	c.Pods = []decision.Pod{{
		Name: fmt.Sprint("pod-", i), PodRecord: contract.PodRecord{UID: uid},
		Containers: []decision.Container{{Name: "main", BesideMain: true, Claims: []decision.ClaimReference{{Claim: name}}}},
	}}
	return c
}

func decide(t require.TestingT, in decision.Input) []string {
	var cpus []string
	for _, o := range decision.Decide(in) {
		require.NoError(t, o.Err)
		cpus = append(cpus, o.Record.CPUs().String())
	}
	return cpus
}

func TestDecide(t *testing.T) {
	node := testNode(t)
	zone := node.Inventory.Zones["numa-0"]
	require.Equal(t, 4, zone.CPUs.Size())

	t.Run("claims get CPUs one after the other", func(t *testing.T) {
		got := decide(t, decision.Input{Node: node, Claims: []decision.Claim{claim(1, "numa-0", 1, 0), claim(2, "numa-0", 2, 0)}})
		require.Len(t, got, 2)
		require.True(t, contracttest.CPUs(got[0]).Intersection(contracttest.CPUs(got[1])).IsEmpty(), "%v", got)
	})
	t.Run("the claims that have the CPUs are named, but for other namespaces", func(t *testing.T) {
		var taken []decision.Claim
		for i, namespace := range []string{"ns", "secret", "secret"} {
			c := claim(i+1, "numa-0", 1, 0)
			c.Namespace = namespace
			taken = append(taken, c)
		}
		var prepared []contract.ClaimRecord
		for _, o := range decision.Decide(decision.Input{Node: node, Claims: taken}) {
			require.NoError(t, o.Err)
			prepared = append(prepared, o.Record)
		}
		got := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{claim(4, "numa-0", 2, 0)}, Prepared: prepared})
		foreign := prepared[1].CPUs().Union(prepared[2].CPUs())
		require.ErrorContains(t, got[0].Err, fmt.Sprintf("holders of the other CPUs: claim ns/claim-1 (%s), claims of other namespaces (%s); ",
			prepared[0].CPUs(), foreign))
		require.NotContains(t, got[0].Err.Error(), "secret")
	})
	t.Run("eight claims at most are named", func(t *testing.T) {
		var prepared []contract.ClaimRecord
		for i := range 10 {
			prepared = append(prepared, contract.ClaimRecord{
				Namespace: "ns", Name: fmt.Sprint("c", i), UID: fmt.Sprintf("00000000-0000-4000-9000-%012d", i),
				Results: []contract.ResultRecord{{Device: "numa-0", Decision: contract.Decision{CPUs: zone.CPUs}}},
			})
		}
		got := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{claim(4, "numa-0", 2, 0)}, Prepared: prepared})
		require.ErrorContains(t, got[0].Err, fmt.Sprintf("claim ns/c7 (%[1]s), more claims of the namespace (%[1]s); ", zone.CPUs))
	})
	t.Run("a claim that is decided anew keeps its CPUs", func(t *testing.T) {
		first := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{claim(1, "numa-0", 1, 0), claim(2, "numa-0", 1, 0)}})
		prepared := []contract.ClaimRecord{first[0].Record, first[1].Record}
		again := claim(2, "numa-0", 1, 0)
		again.FormerCPUs = []contract.CPUSet{first[1].Record.CPUs()}
		got := decide(t, decision.Input{Node: node, Claims: []decision.Claim{again}, Prepared: prepared})
		require.Equal(t, []string{first[1].Record.CPUs().String()}, got)
	})
	t.Run("a claim that is refused changes no other", func(t *testing.T) {
		outcomes := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{
			claim(1, "numa-0", 3, 0), claim(2, "numa-0", 2, 0), claim(3, "numa-0", 1, 0),
		}})
		require.NoError(t, outcomes[0].Err)
		require.ErrorContains(t, outcomes[1].Err, "2 CPUs granted, 1 of the zone's 4 are free")
		require.ErrorContains(t, outcomes[1].Err, "claim ns/claim-1")
		require.NoError(t, outcomes[2].Err)
	})
	t.Run("a zone that is full of nothing", func(t *testing.T) {
		node := node
		node.Inventory.Zones = map[string]decision.Zone{"numa-0": {CPUs: zone.CPUs}}
		outcomes := decision.Decide(decision.Input{Node: node, Claims: []decision.Claim{claim(1, "numa-0", 0, gi)}})
		require.ErrorContains(t, outcomes[0].Err, `request "r" on device "numa-0": memory or hugepages granted, the zone offers none`)
	})
	t.Run("a claim beside raises no error and gets no record", func(t *testing.T) {
		broken := claim(2, "numa-9", 1, 0)
		broken.PodsErr = fmt.Errorf("unread")
		request := decision.Input{Node: node, Claims: []decision.Claim{claim(1, "numa-0", 1, 0)}, OtherClaims: []decision.Claim{broken}}
		require.Len(t, decide(t, request), 1)
	})
}

// Laws of every input: a record has the granted number of CPUs, from its zone
// (I2); no CPU is in two records (I1); the same input gives the same records
// (I8), in whatever order the prepared claims are listed.
func TestLaws(t *testing.T) {
	node := testNode(t)
	rapid.Check(t, func(t *rapid.T) {
		var claims []decision.Claim
		for i := range rapid.IntRange(1, 6).Draw(t, "claims") {
			zone := rapid.SampledFrom([]string{"numa-0", "numa-1", "numa-9"}).Draw(t, "zone")
			memory := int64(rapid.IntRange(0, 1).Draw(t, "memory")) * gi
			claims = append(claims, claim(i+1, zone, rapid.IntRange(0, 4).Draw(t, "cpus"), memory))
		}
		split := rapid.IntRange(0, len(claims)).Draw(t, "prepared")
		var prepared []contract.ClaimRecord
		for _, o := range decision.Decide(decision.Input{Node: node, Claims: claims[:split]}) {
			if o.Err == nil {
				prepared = append(prepared, o.Record)
			}
		}
		request := decision.Input{Node: node, Claims: claims[split:], Prepared: prepared}
		outcomes := decision.Decide(request)
		require.Len(t, outcomes, len(request.Claims))
		taken := nodestate.ClaimedCPUs(prepared)
		for i, o := range outcomes {
			if o.Err != nil {
				require.Equal(t, contract.ClaimRecord{}, o.Record)
				continue
			}
			cpus, r := o.Record.CPUs(), request.Claims[i].Results[0]
			require.Equal(t, r.Amounts.CPUs, cpus.Size(), "I2")
			require.True(t, cpus.IsSubsetOf(node.Inventory.Zones[r.Device].CPUs), "I2")
			require.True(t, cpus.Intersection(taken).IsEmpty(), "I1")
			taken = taken.Union(cpus)
		}
		request.Prepared = rapid.Permutation(prepared).Draw(t, "order")
		require.Equal(t, records(outcomes), records(decision.Decide(request)), "I8")
	})
}

func records(outcomes []decision.Outcome) []contract.ClaimRecord {
	var out []contract.ClaimRecord
	for _, o := range outcomes {
		out = append(out, o.Record)
	}
	return out
}

// A45: values of pods and ancestors are written only where the driver owns
// them.
func TestOwner(t *testing.T) {
	for owner, protect := range map[string]bool{config.OwnerDriver: true, config.OwnerKubelet: false, config.OwnerNone: false} {
		c := config.Default()
		c.MemoryQoS.Owner = owner
		i, err := c.Divide(topologytest.T2().Machine())
		require.NoError(t, err)
		require.Equal(t, protect, decision.InventoryOf(c, i, "boot").Base.Protect, owner)
	}
}
