// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
)

// A prepared claim keeps its kind, and later claims of the container follow it.
func TestPartitionAfterPrepared(t *testing.T) {
	both := decision.Pod{Containers: []decision.Container{using("main", true, ref("claim-1"), ref("claim-2"))}}
	t.Run("a claim of the pool", func(t *testing.T) {
		n := newNode(t)
		a, b := template(n.claim(1, "numa-0", capacity{"cpu": "1"})), template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, a, b)
		require.NoError(t, n.prepareAll(a))
		n.partitions(true)
		require.NoError(t, n.prepareAll(a, b))
		require.Empty(t, n.record(1).Results[0].Decision.Partition)
		require.Empty(t, n.record(2).Results[0].Decision.Partition)

		c := isolation(template(n.claim(3, "numa-0", capacity{"cpu": "1"})), partition)
		n.pod(decision.Pod{Containers: []decision.Container{using("main", true, ref("claim-2"), ref("claim-3"))}}, b, c)
		require.ErrorContains(t, n.prepareAll(c), "container pod/main also uses claim claim-2, request zone, "+
			"which is no partition: it was prepared without a partition")
	})
	t.Run("a partition", func(t *testing.T) {
		n := newNode(t)
		n.partitions(true)
		a, b := template(n.claim(1, "numa-0", capacity{"cpu": "1"})), template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, a, b)
		require.NoError(t, n.prepareAll(a))
		n.partitions(false)
		require.ErrorContains(t, n.prepareAll(a, b), "container pod/main also uses claim claim-1, "+
			"which is a cpuset partition, and this request cannot be a partition: "+noKernel)
		require.Len(t, n.claimFiles(), 1)
		n.partitions(true)
		require.NoError(t, n.prepareAll(a, b))
		require.Equal(t, contract.PartitionRoot, n.record(2).Results[0].Decision.Partition)
		require.Equal(t, "0-1", n.state().Pods[uid(999)].PartitionCPUs.String())
	})
	t.Run("a partition that could be none now", func(t *testing.T) {
		n := newNode(t)
		n.partitions(true)
		a, b := isolation(n.claim(1, "numa-0", capacity{"cpu": "1"}), partition), template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, a, b)
		require.NoError(t, n.prepareAll(a))
		n.late(a, "second", 5)
		require.NoError(t, n.prepareAll(a, b))
		require.Equal(t, contract.PartitionRoot, n.record(2).Results[0].Decision.Partition)
	})
	t.Run("memory", func(t *testing.T) {
		n := newNode(t)
		n.partitions(true)
		a, b := n.claim(1, "numa-0", capacity{"memory": "1Gi"}), template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, a, b)
		require.NoError(t, n.prepareAll(a, b))
		require.Empty(t, n.record(1).Results[0].Decision.Partition)
		require.Equal(t, contract.PartitionRoot, n.record(2).Results[0].Decision.Partition)
		require.Equal(t, contract.PartitionRoot, n.merged(1, 2).Partition)
	})
	t.Run("another pod's claim, which kubelet does not name again", func(t *testing.T) {
		n := newNode(t)
		n.partitions(true)
		shared := n.claim(1, "numa-0", capacity{"cpu": "1"})
		require.NoError(t, n.prepareAll(shared))
		own := template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, own)
		require.NoError(t, n.prepareAll(own))
		require.Empty(t, n.record(2).Results[0].Decision.Partition)
	})
	t.Run("an earlier claim of the same name", func(t *testing.T) {
		n := newNode(t)
		old := n.claim(1, "numa-0", capacity{"cpu": "1"})
		require.NoError(t, n.prepareAll(old))
		n.partitions(true)
		next := template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		next.Name = old.Name
		n.pod(decision.Pod{Containers: []decision.Container{using("main", true, ref(old.Name))}}, next)
		require.NoError(t, n.prepareAll(next))
		require.Equal(t, contract.PartitionRoot, n.record(2).Results[0].Decision.Partition)
		require.Equal(t, "1-7", n.state().Shared.CPUs.String())
	})
	t.Run("of another namespace", func(t *testing.T) {
		n := newNode(t)
		other := n.claim(1, "numa-0", capacity{"cpu": "1"})
		other.Namespace = "elsewhere"
		require.NoError(t, n.prepareAll(other))
		n.partitions(true)
		own := template(n.claim(2, "numa-0", capacity{"cpu": "1"}))
		n.pod(both, own)
		require.NoError(t, n.prepareAll(own))
		require.Equal(t, contract.PartitionRoot, n.record(2).Results[0].Decision.Partition)
	})
	t.Run("not on the same container", func(t *testing.T) {
		n := newNode(t)
		require.NoError(t, n.prepareAll(n.claim(1, "numa-0", capacity{"cpu": "1"})))
		n.partitions(true)
		require.NoError(t, n.prepareAll(template(n.claim(2, "numa-0", capacity{"cpu": "1"}))))
		require.NoError(t, n.prepareAll(template(n.claim(3, "numa-1", capacity{"cpu": "2"}))))
		state := n.state()
		require.Equal(t, "1-7", state.Shared.CPUs.String())
		require.Equal(t, "1-3", state.PartitionCPUs[contract.LevelKubepods].String())
		require.Equal(t, []string{"", "1", "2-3"}, []string{
			state.Pods[uid(1001)].PartitionCPUs.String(), state.Pods[uid(1002)].PartitionCPUs.String(),
			state.Pods[uid(1003)].PartitionCPUs.String(),
		})
	})
}

// Siblings' cpuset.cpus.exclusive may not overlap, so a partition belongs to
// one pod. Pods that are gone do not count, and later pods do not join.
func TestPartitionOfSeveralPods(t *testing.T) {
	for name, params := range map[string]string{"not asked for": "", "asked for": partition} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.partitions(true)
			c := isolation(n.claim(1, "numa-0", capacity{"cpu": "2"}), params)
			n.late(c, "second", 5)
			second := n.pods["second"]
			second.Containers = []decision.Container{using("main", true)} // the pod is a consumer, and none of its containers uses the claim
			n.pods["second"] = second
			_, err := n.prepare(c)
			if params == "" {
				require.NoError(t, err)
				require.True(t, n.record(1).Joinable)
				n.requirePartition("", 1)
				return
			}
			require.ErrorContains(t, err, "2 pods have the claim")

			delete(n.pods, "second")
			_, err = n.prepare(c)
			require.NoError(t, err)
			n.requirePartition(contract.PartitionRoot, 1)
			n.late(c, "third", 6)
			require.NoError(t, n.join(c))
			require.NotContains(t, n.state().Pods, uid(6))
			n.requirePartition(contract.PartitionRoot, 1)
		})
	}
}

// unread is an API server that does not answer for one pod.
type unread struct {
	kubelet.Pods
	name string
}

// A decision would stand. So nothing is decided while a pod of another claim of
// the container cannot be read.
func TestPartitionBesideAnUnknownClaim(t *testing.T) {
	n := newNode(t)
	n.partitions(true)
	a, b := template(n.claim(1, "numa-0", capacity{"cpu": "1"})), n.claim(2, "numa-0", capacity{"cpu": "1", "memory": "1Gi"})
	n.pod(decision.Pod{Containers: []decision.Container{using("main", true, ref("claim-1"), ref("claim-2"))}}, a, b)
	n.late(b, "unread", 7)
	n.wrapPods = func(p kubelet.Pods) kubelet.Pods { return unread{p, "unread"} }
	n.restart()
	require.ErrorContains(t, n.prepareAll(a, b), "the API server is away")
	require.Empty(t, n.claimFiles())
	n.wrapPods = nil
	n.restart()
	b.Status.ReservedFor = b.Status.ReservedFor[:1]
	require.NoError(t, n.prepareAll(a, b))
	for i := range 2 {
		require.Equal(t, contract.PartitionRoot, n.record(i + 1).Results[0].Decision.Partition)
	}
}

func (u unread) Pod(ctx context.Context, namespace, name string) (decision.Pod, error) {
	if name == u.name {
		return decision.Pod{}, errors.New("the API server is away")
	}
	return u.Pods.Pod(ctx, namespace, name)
}

// Each container is a partition with all of its CPUs or not at all. One
// container at a time has the CPUs of a partition. The order of claims does not
// matter (I8).
func TestPartitionLaws(tt *testing.T) {
	rapid.Check(tt, func(t *rapid.T) {
		n := newNode(tt)
		n.t = t
		n.partitions(true)
		count := rapid.IntRange(1, 4).Draw(t, "claims")
		var claims []*resourceapi.ResourceClaim
		for i := range count {
			c := isolation(n.claim(i+1, rapid.SampledFrom([]string{"numa-0", "numa-1"}).Draw(t, "zone"), capacity{"cpu": "1"}),
				rapid.SampledFrom([]string{"", "", isolationNone, isolated}).Draw(t, "isolation"))
			if rapid.Bool().Draw(t, "template") {
				template(c)
			}
			claims = append(claims, c)
		}
		pod := decision.Pod{RuntimeClass: rapid.SampledFrom([]string{"", "", "kata"}).Draw(t, "class")}
		for _, name := range []string{"a", "b", "c", "d"} {
			c := using(name, rapid.Bool().Draw(t, "runs"))
			for i := range count {
				if rapid.Bool().Draw(t, "uses") {
					c.Claims = append(c.Claims, ref(claims[i].Name))
				}
			}
			pod.Containers = append(pod.Containers, c)
		}
		n.pod(pod, claims...)
		kinds := func(order []*resourceapi.ResourceClaim, calls int) map[string]string {
			out := make(map[string]string)
			for range calls { // kubelet asks again while a claim is refused
				results, err := n.driver.PrepareResourceClaims(context.Background(), order)
				require.NoError(t, err)
				for _, c := range order {
					out[c.Name] = "refused"
					if results[c.UID].Err == nil {
						var i int
						_, err := fmt.Sscanf(c.Name, "claim-%d", &i)
						require.NoError(t, err)
						out[c.Name] = n.record(i).Results[0].Decision.Partition
					}
				}
			}
			return out
		}
		got := kinds(claims, 2)
		for _, c := range pod.Containers {
			seen := make(map[string]bool)
			for _, r := range c.Claims {
				if k := got[r.Claim]; k != "refused" {
					seen[map[bool]string{true: "", false: "partition"}[k == ""]] = true
				}
			}
			require.LessOrEqual(t, len(seen), 1, "container %s is a partition with some of its CPUs: %v", c.Name, got)
		}
		state := n.state()
		held := state.PartitionCPUs[contract.LevelKubepods]
		for i, c := range claims {
			if k := got[c.Name]; k == "refused" || k == "" {
				continue
			}
			require.True(t, n.record(i+1).CPUs().IsSubsetOf(held))
			running := 0
			for _, container := range pod.Containers {
				if container.BesideMain && slices.Contains(container.Claims, ref(c.Name)) {
					running++
				}
			}
			require.LessOrEqual(t, running, 1)
		}
		require.Equal(t, held, state.Pods[uid(999)].PartitionCPUs)
		for i := range claims {
			require.NoError(t, n.unprepare(i+1))
		}
		slices.Reverse(claims)
		require.Equal(t, got, kinds(claims, 1))
	})
}
