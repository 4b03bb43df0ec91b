// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
)

const mi = 1 << 20

// together makes one pod with one container that uses all of the claims.
func (n *node) together(limit int64, claims ...*resourceapi.ResourceClaim) {
	c := decision.Container{Name: "main", BesideMain: true, MemoryLimit: limit}
	for _, claim := range claims {
		c.Claims = append(c.Claims, decision.ClaimReference{Claim: claim.Name})
	}
	n.pod(decision.Pod{Containers: []decision.Container{c}}, claims...)
}

// pod reserves the claims for one pod.
func (n *node) pod(p decision.Pod, claims ...*resourceapi.ResourceClaim) {
	p.Name, p.PodRecord = "pod", contract.PodRecord{UID: uid(999), QOS: contract.LevelBurstable}
	n.pods["pod"] = p
	for _, claim := range claims {
		claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: types.UID(uid(999))}}
	}
}

// prepareAll is one call of kubelet. The error joins the errors of all claims.
func (n *node) prepareAll(claims ...*resourceapi.ResourceClaim) error {
	results, err := n.driver.PrepareResourceClaims(context.Background(), claims)
	require.NoError(n.t, err)
	var errs []error
	for _, c := range claims {
		errs = append(errs, results[c.UID].Err)
	}
	return errors.Join(errs...)
}

// merged returns the decision for a container that uses all of the claims.
func (n *node) merged(ids ...int) contract.Decision {
	decisions := make(map[contract.Key]contract.Decision)
	for _, i := range ids {
		for index, r := range n.record(i).Results {
			decisions[contract.Key{ClaimUID: uid(i), Index: index}] = r.Decision
		}
	}
	return contract.Merge(decisions)
}

func (n *node) bytes(i int) string {
	data, err := os.ReadFile(filepath.Join(n.dir, contract.ClaimFile(uid(i))))
	require.NoError(n.t, err)
	return string(data)
}

func throttled(n *node, factor float64) {
	n.config.MemoryQoS.ThrottlingFactor = &factor
	n.restart()
}

// A41: several claims on a container with a limit of its own give the values of
// one claim of their sum.
func TestClaimsOnOneContainer(t *testing.T) {
	n := newNode(t)
	throttled(n, 0.5)
	a := n.claim(1, "numa-0", capacity{"memory": "256Mi"})
	b := n.claim(2, "numa-1", capacity{"memory": "768Mi"})
	n.together(2*gi, a, b)
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: gi + gi/2, Max: contract.Max}, *n.merged(1, 2).Memory)
	require.Equal(t, contract.Files{"memory.low": "1073741824"}, n.state().Pods[uid(999)].Cgroup)

	// With a limit equal to the sum, memory.min protects both.
	require.NoError(t, n.unprepare(1))
	require.NoError(t, n.unprepare(2))
	n.together(gi, a, b)
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Min: gi, High: contract.Max, Max: contract.Max}, *n.merged(1, 2).Memory)
}

// A13: the sum of the claims is compared with the container's limit.
func TestClaimsAboveTheLimitOfTheirContainer(t *testing.T) {
	n := newNode(t)
	before := n.state()
	a := n.claim(1, "numa-0", capacity{"memory": "768Mi"})
	b := n.claim(2, "numa-1", capacity{"memory": "768Mi"})
	n.together(gi, a, b)
	results, err := n.driver.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{a, b})
	require.NoError(t, err)
	for _, c := range []*resourceapi.ResourceClaim{a, b} {
		require.ErrorContains(t, results[c.UID].Err, "container pod/main "+
			"(claim claim-1 request zone: 805306368, claim claim-2 request zone: 805306368): "+
			"the container's memory limit of 1073741824 bytes is below the claimed 1610612736 bytes: raise the limit or drop it")
	}
	require.Empty(t, n.claimFiles())
	require.Equal(t, before, n.state())
}

// The results of several requests of one claim count together. A request that
// another container uses does not count.
func TestRequestsOnOneContainer(t *testing.T) {
	n := newNode(t)
	throttled(n, 0.5)
	c := n.claim(1, "numa-0", capacity{"memory": "256Mi"})
	for _, more := range []struct{ request, amount string }{{"second", "768Mi"}, {"third", "1Gi"}} {
		r := *n.claim(2, "numa-1", capacity{"memory": more.amount}).Status.Allocation.Devices.Results[0].DeepCopy()
		r.Request = more.request
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, r)
	}
	n.pod(decision.Pod{Containers: []decision.Container{
		{Name: "main", BesideMain: true, MemoryLimit: 2 * gi, Claims: []decision.ClaimReference{
			{Claim: "claim-1", Request: "zone"},
			{Claim: "claim-1", Request: "second"},
		}},
		{Name: "side", BesideMain: true, MemoryLimit: gi, Claims: []decision.ClaimReference{{Claim: "claim-1", Request: "third"}}},
	}}, c)
	require.NoError(t, n.prepareAll(c))
	results := n.record(1).Results
	require.Equal(t, contract.Memory{Low: 256 * mi, High: 384 * mi, Max: contract.Max}, *results[0].Decision.Memory)
	require.Equal(t, contract.Memory{Low: 768 * mi, High: 1152 * mi, Max: contract.Max}, *results[1].Decision.Memory)
	require.Equal(t, contract.Memory{Min: gi, High: contract.Max, Max: contract.Max}, *results[2].Decision.Memory)
}

// Kubelet asks again for all claims of a pod until one call has prepared them
// all. The claims that are prepared then count as they did the first time (I8).
func TestSecondCall(t *testing.T) {
	for _, unlimited := range []int{0, 1, 2} {
		n := newNode(t)
		throttled(n, 0.5)
		claims := []*resourceapi.ResourceClaim{
			n.claim(1, "numa-0", capacity{"memory": "256Mi", "hugepages_2Mi": "2Mi"}),
			n.claim(2, "numa-1", capacity{"memory": "768Mi", "hugepages_2Mi": "4Mi"}),
		}
		if unlimited > 0 {
			configure(claims[unlimited-1], opaque(`"memory":{"limit":"unlimited"}`))
		}
		n.together(2*gi, claims...)
		n.pods["pod"].Containers[0].Hugepages = map[string]int64{"2Mi": 8 * mi}
		require.NoError(t, n.prepareAll(claims...))
		first := []string{n.bytes(1), n.bytes(2)}
		require.Equal(t, contract.Limit(gi+gi/2), n.merged(1, 2).Memory.High)
		require.Equal(t, contract.Limit(8*mi), n.merged(1, 2).Hugepages["2Mi"], "the spec's")
		for _, failed := range []int{1, 2} {
			require.NoError(t, n.unprepare(failed))
			n.restart()
			require.NoError(t, n.prepareAll(claims...))
			require.Equal(t, first, []string{n.bytes(1), n.bytes(2)})
		}
	}
}

// An init container uses a claim alone, and the main container uses it beside
// another claim. The container with less room decides, and one value serves
// both.
func TestClaimOfTwoContainers(t *testing.T) {
	n := newNode(t)
	throttled(n, 0.5)
	a := n.claim(1, "numa-0", capacity{"memory": "256Mi"})
	b := n.claim(2, "numa-1", capacity{"memory": "768Mi"})
	n.pod(decision.Pod{Containers: []decision.Container{
		{Name: "init", MemoryLimit: 2 * gi, Claims: []decision.ClaimReference{{Claim: "claim-1"}}},
		{Name: "main", BesideMain: true, MemoryLimit: 2 * gi, Claims: []decision.ClaimReference{{Claim: "claim-1"}, {Claim: "claim-2"}}},
	}}, a, b)
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Limit(384*mi), n.record(1).Results[0].Decision.Memory.High)
	require.Equal(t, contract.Limit(gi+gi/2), n.merged(1, 2).Memory.High)
}

// I8: the order of claims in a call changes no byte, not even the choice of
// CPUs.
func TestOrderOfClaimsInACall(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.Int64Range(4*gi, 1<<40).Draw(rt, "limit")
		factor := rapid.Float64Range(0.001, 1).Draw(rt, "factor")
		var amounts []string
		var sum contract.Limit
		for range rapid.IntRange(1, 4).Draw(rt, "claims") {
			pages := rapid.Int64Range(1, gi/pageSize).Draw(rt, "pages")
			amounts = append(amounts, fmt.Sprint(pages*pageSize))
			sum += contract.Limit(pages * pageSize)
		}
		own := rapid.Bool().Draw(rt, "own limit")
		order := rapid.Permutation([]int{0, 1, 2, 3}).Draw(rt, "order")
		var want []string
		for _, inOrder := range []bool{true, false} {
			work, err := os.MkdirTemp("/dev/shm", "cpumem")
			require.NoError(rt, err)
			defer os.RemoveAll(work)
			n := nodeIn(rt, work)
			n.allocatable = limit
			throttled(n, factor)
			requireReconciled(rt, n.driver)
			var claims, call []*resourceapi.ResourceClaim
			var ids []int
			for i, amount := range amounts {
				claims = append(claims, n.claim(i+1, fmt.Sprintf("numa-%d", i%2), capacity{"cpu": "1", "memory": amount}))
				ids = append(ids, i+1)
				if !own {
					configure(claims[i], opaque(`"memory":{"limit":"unlimited"}`))
				}
			}
			if own {
				n.together(limit, claims...)
			} else {
				n.together(0, claims...)
			}
			for _, i := range order {
				if i < len(claims) {
					call = append(call, claims[i])
				}
			}
			if inOrder {
				call = claims
			}
			require.NoError(rt, n.prepareAll(call...))
			var got []string
			for _, id := range ids {
				got = append(got, n.bytes(id))
			}
			m := *n.merged(ids...).Memory
			protected := contract.Memory{Low: sum, High: m.High, Max: contract.Max}
			if own && int64(sum) == limit {
				protected.Min, protected.Low = sum, 0
			}
			require.Equal(rt, protected, m)
			if m.High != contract.Max {
				require.Greater(rt, m.High, sum)
				require.LessOrEqual(rt, m.High, contract.Limit(limit))
			}
			if want == nil {
				want = got
			}
			require.Equal(rt, want, got)
		}
	})
}

// The memory.high of an unlimited claim depends on the node's memory. That
// memory is read once for a call, and only if the claim is throttled.
func TestUnlimited(t *testing.T) {
	n := newNode(t)
	unlimited := func() (a, b *resourceapi.ResourceClaim) {
		a, b = n.claim(1, "numa-0", capacity{"memory": "256Mi"}), n.claim(2, "numa-1", capacity{"memory": "768Mi"})
		for _, c := range []*resourceapi.ResourceClaim{a, b} {
			configure(c, opaque(`"memory":{"limit":"unlimited"}`))
		}
		n.together(0, a, b)
		return a, b
	}
	a, b := unlimited()
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: contract.Max, Max: contract.Max}, *n.merged(1, 2).Memory)
	require.Equal(t, "unlimited", n.record(1).Results[0].Parameters["memory.limit"])
	require.Zero(t, n.gets, "nothing is throttled")
	require.NoError(t, n.unprepare(1))
	require.NoError(t, n.unprepare(2))

	throttled(n, 0.5)
	n.allocatable = 0
	require.ErrorContains(t, n.prepareAll(a, b), "memory.limit is unlimited, "+
		"so that memory.high depends on the node's allocatable memory: the API server is away")
	require.Empty(t, n.claimFiles())
	n.allocatable, n.gets = 16*gi, 0
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: (gi + 16*gi) / 2, Max: contract.Max}, *n.merged(1, 2).Memory)
	require.Equal(t, 1, n.gets)
	n.allocatable = 0
	require.NoError(t, n.prepareAll(a, b), "I8")

	// A claim is limited if its container or its pod has a limit, and does not need
	// the node's allocatable memory then.
	require.NoError(t, n.unprepare(1))
	require.NoError(t, n.unprepare(2))
	n.together(2*gi, a, b)
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: gi + gi/2, Max: contract.Max}, *n.merged(1, 2).Memory)
	require.NoError(t, n.unprepare(1))
	require.NoError(t, n.unprepare(2))
	n.together(0, a, b)
	p := n.pods["pod"]
	p.MemoryLimit = 3 * gi
	n.pods["pod"] = p
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: 2 * gi, Max: contract.Max}, *n.merged(1, 2).Memory)
}

// One claim has a limit and the other claim has none: the container has none.
func TestUnlimitedBesideALimit(t *testing.T) {
	n := newNode(t)
	throttled(n, 0.5)
	a, b := n.claim(1, "numa-0", capacity{"memory": "256Mi"}), n.claim(2, "numa-1", capacity{"memory": "768Mi"})
	configure(a, opaque(`"memory":{"limit":"unlimited"}`))
	n.together(0, a, b)
	require.NoError(t, n.prepareAll(a, b))
	require.Equal(t, contract.Memory{Low: gi, High: (gi + 16*gi) / 2, Max: contract.Max}, *n.merged(1, 2).Memory)
}

// No claim gets memory.high on a kernel that can hang tasks at it.
func TestThrottlingOnAnOldKernel(t *testing.T) {
	n := newNode(t)
	n.noMemoryHigh = errors.New("kernel 5.8.18 can hang tasks at memory.high, which is mended in 5.9")
	n.restart()
	c := n.claim(1, "numa-0", capacity{"memory": "1Gi"})
	configure(c, opaque(`"memory":{"limit":"2Gi","throttlingFactor":0.5}`))
	_, err := n.prepare(c)
	require.ErrorContains(t, err, `request "zone" on device "numa-0": memory.throttlingFactor: 0.5, `+
		`but kernel 5.8.18 can hang tasks at memory.high, which is mended in 5.9: leave it out`)
	require.Empty(t, n.claimFiles())
	configure(c, opaque(`"memory":{"limit":"2Gi"}`))
	_, err = n.prepare(c)
	require.NoError(t, err)
}

// A45: if kubelet owns pods and levels, containers have the same values, and
// the node state names no values for pods and levels. Package inventory tests
// what the owner means for Protect.
func TestOwnerKubelet(t *testing.T) {
	decision := func(owner string) (contract.Decision, contract.NodeState) {
		n := newNode(t)
		n.config.MemoryQoS.Owner = owner
		throttled(n, 0.5)
		inventory := t2()
		inventory.Base.Protect = owner == config.OwnerDriver
		n.driver.SetInventory(inventory)
		c := n.claim(1, "numa-0", capacity{"memory": "1Gi"})
		configure(c, opaque(`"memory":{"limit":"2Gi","protection":"auto"}`))
		_, err := n.prepare(c)
		require.NoError(t, err)
		return n.record(1).Results[0].Decision, n.state()
	}
	driver, _ := decision(config.OwnerDriver)
	kubelet, state := decision(config.OwnerKubelet)
	require.Equal(t, contract.Memory{Low: gi, High: gi + gi/2, Max: 2 * gi}, *driver.Memory)
	require.Equal(t, driver, kubelet)
	require.Empty(t, state.Pods[uid(1001)].Cgroup)
	for level, files := range state.Ancestors {
		require.Empty(t, files, level)
	}
}

// The claimed memory of containers that run at the same time must fit into the
// limit of their pod.
func TestClaimsAndTheLimitOfThePod(t *testing.T) {
	use := func(claims ...string) []decision.ClaimReference {
		var out []decision.ClaimReference
		for _, c := range claims {
			out = append(out, decision.ClaimReference{Claim: c})
		}
		return out
	}
	for name, c := range map[string]struct {
		containers []decision.Container
		refused    string
	}{
		"one after the other": {
			containers: []decision.Container{{Name: "init", Claims: use("claim-1")}, {Name: "main", BesideMain: true, Claims: use("claim-2")}},
		},
		"one by both, in turn": {
			containers: []decision.Container{{Name: "init", Claims: use("claim-1")}, {Name: "main", BesideMain: true, Claims: use("claim-1")}},
		},
		"at the same time": {
			containers: []decision.Container{
				{Name: "main", BesideMain: true, Claims: use("claim-1")},
				{Name: "second", BesideMain: true, Claims: use("claim-2")},
			},
			refused: "claim claim-1 request zone: 805306368, claim claim-2 request zone: 805306368",
		},
		"in one container": {
			containers: []decision.Container{{Name: "main", BesideMain: true, Claims: use("claim-1", "claim-2")}},
			refused:    "of 1073741824 bytes is below the claimed 1610612736 bytes",
		},
		"beside a sidecar": {
			containers: []decision.Container{
				{Name: "sidecar", BesideMain: true, Claims: use("claim-1")},
				{Name: "init", Claims: use("claim-2")},
				{Name: "main", BesideMain: true},
			},
			refused: "below the claimed 1610612736 bytes",
		},
		"before a sidecar": {
			containers: []decision.Container{
				{Name: "init", Claims: use("claim-2")},
				{Name: "sidecar", BesideMain: true, Claims: use("claim-1")},
				{Name: "main", BesideMain: true},
			},
		},
		"by a container with no claim": {
			containers: []decision.Container{{Name: "main", BesideMain: true, Claims: use("claim-1")}, {Name: "second", BesideMain: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a, b := n.claim(1, "numa-0", capacity{"memory": "768Mi"}), n.claim(2, "numa-1", capacity{"memory": "768Mi"})
			n.pod(decision.Pod{MemoryLimit: gi, Containers: c.containers}, a, b)
			err := n.prepareAll(a, b)
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "the memory limit of pod pod of 1073741824 bytes is below")
			require.ErrorContains(t, err, c.refused)
			require.Empty(t, n.claimFiles())
		})
	}
}
