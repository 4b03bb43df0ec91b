// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/oomscore"
)

// scores prepares claims in one call on a node with 16 GiB, and returns the
// scores of their first results. A result without a score counts as 1000, the
// score of kubelet for containers of pods that request nothing.
func (n *node) scores(claims ...*resourceapi.ResourceClaim) []int {
	n.features, n.capacity = []string{contract.FeatureOOMScore}, func() (int64, error) { return 16 * gi, nil }
	n.restart()
	require.NoError(n.t, n.prepareAll(claims...))
	var scores []int
	for i := range claims {
		d := n.record(i + 1).Results[0].Decision
		scores = append(scores, oomscore.BestEffort)
		if d.OOMScoreAdj != nil {
			require.Contains(n.t, d.Requires, contract.FeatureOOMScore)
			scores[i] = *d.OOMScoreAdj
		}
	}
	return scores
}

// A81: a container with claims has the score of a container with the claimed
// amounts as requests and limits.
func TestOOMScore(t *testing.T) {
	uses := func(numbers ...int) decision.Container {
		c := decision.Container{Name: "c", BesideMain: true}
		for _, i := range numbers {
			c.Claims = append(c.Claims, decision.ClaimReference{Claim: fmt.Sprintf("claim-%d", i)})
		}
		return c
	}
	setup := func(c decision.Container) decision.Container { c.Init, c.BesideMain = true, false; return c }
	spec := func(c decision.Container, cpu, memory oomscore.Amount) decision.Container {
		c.Resources, c.MemoryLimit = oomscore.Resources{CPU: cpu, Memory: memory}, memory.Limit
		return c
	}
	for name, c := range map[string]struct {
		claims     []capacity
		parameters string
		containers []decision.Container
		want       []int
	}{
		"memory":               {[]capacity{{"memory": "4Gi"}}, "", []decision.Container{uses(1)}, []int{750}},
		"CPUs":                 {[]capacity{{"cpu": "2"}}, "", []decision.Container{uses(1)}, []int{999}},
		"hugepages":            {[]capacity{{"hugepages_2Mi": "4Mi"}}, "", []decision.Container{uses(1)}, []int{1000}},
		"CPUs and memory":      {[]capacity{{"cpu": "2", "memory": "4Gi"}}, "", []decision.Container{uses(1)}, []int{-997}},
		"of two claims":        {[]capacity{{"cpu": "2"}, {"memory": "4Gi"}}, "", []decision.Container{uses(1, 2)}, []int{-997, -997}},
		"two claims of memory": {[]capacity{{"memory": "4Gi"}, {"memory": "2Gi"}}, "", []decision.Container{uses(1, 2)}, []int{625, 625}},
		"each in a container": {
			claims:     []capacity{{"memory": "4Gi"}, {"memory": "2Gi"}},
			containers: []decision.Container{uses(1), uses(2)},
			want:       []int{750, 875},
		},
		"beside a container without a claim": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{uses(1), uses()},
			want:       []int{750},
		},
		"two guaranteed containers": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}, {"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{uses(1), uses(2)},
			want:       []int{-997, -997},
		},
		"one with a spec of its own": {
			claims: []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{
				uses(1),
				spec(uses(), oomscore.Amount{Request: 100, Limit: 100}, oomscore.Amount{Request: gi, Limit: gi}),
			},
			want: []int{-997},
		},
		"the claim repeated in the spec counts once": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{spec(uses(1), oomscore.Amount{Request: 2000}, oomscore.Amount{Request: 4 * gi})},
			want:       []int{-997},
		},
		"a larger request in the spec": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{spec(uses(1), oomscore.Amount{}, oomscore.Amount{Request: 8 * gi})},
			want:       []int{500},
		},
		"a larger limit in the spec": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{spec(uses(1), oomscore.Amount{}, oomscore.Amount{Request: gi, Limit: 8 * gi})},
			want:       []int{750},
		},
		"a lower limit of CPUs in the spec": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			containers: []decision.Container{spec(uses(1), oomscore.Amount{Request: 500, Limit: 500}, oomscore.Amount{})},
			want:       []int{750},
		},
		"a limit above the claim": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			parameters: `"memory":{"limit":"8Gi"}`,
			containers: []decision.Container{uses(1)},
			want:       []int{750},
		},
		"no limit": {
			claims:     []capacity{{"cpu": "2", "memory": "4Gi"}},
			parameters: `"memory":{"limit":"unlimited"}`,
			containers: []decision.Container{uses(1)},
			want:       []int{750},
		},
		"limits whose sum overflows to the request": {
			claims: []capacity{
				{"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"},
				{"memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"}, {"memory": "1Gi"},
			},
			parameters: `"memory":{"limit":"2305843010287435776"}`, // 2^61 + 1Gi
			containers: []decision.Container{uses(1, 2, 3, 4, 5, 6, 7, 8)},
			want:       []int{500, 500, 500, 500, 500, 500, 500, 500},
		},
		"setup uses one of two claims": {
			claims:     []capacity{{"memory": "4Gi"}, {"memory": "2Gi"}},
			containers: []decision.Container{setup(uses(1)), uses(1, 2)},
			want:       []int{750, 625},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			var claims []*resourceapi.ResourceClaim
			for i, asked := range c.claims {
				claims = append(claims, isolation(template(n.claim(i+1, "numa-0", asked)), c.parameters))
			}
			n.pod(decision.Pod{Containers: c.containers}, claims...)
			require.Equal(t, c.want, n.scores(claims...))
		})
	}
}

// Of pods that come later, only the CPUs of the shared claim are known.
func TestOOMScoreOfASharedClaim(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"cpu": "2"})
	limited := using("main", true, ref("claim-1"))
	limited.Resources = oomscore.Resources{Memory: oomscore.Amount{Request: gi, Limit: gi}}
	n.pod(decision.Pod{Containers: []decision.Container{limited}}, c)
	require.Equal(t, []int{999}, n.scores(c))
	require.True(t, n.record(1).Joinable)

	require.NoError(t, n.unprepare(1))
	require.Equal(t, []int{-997}, n.scores(template(c)), "nobody comes to a pod's own")
}

// Claims are prepared without a score if kubelet keeps its own.
func TestOOMScoreIsLeftOut(t *testing.T) {
	for name, edit := range map[string]func(*node){
		"the actuator cannot": func(n *node) { n.features = nil },
		"oomScore: keep":      func(n *node) { n.capacity = nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.features, n.capacity = []string{contract.FeatureOOMScore}, func() (int64, error) { return 16 * gi, nil }
			edit(n)
			n.restart()
			c := n.claim(1, "numa-0", capacity{"memory": "4Gi"})
			_, err := n.prepare(c)
			require.NoError(t, err)
			d := n.record(1).Results[0].Decision
			require.Nil(t, d.OOMScoreAdj)
			require.Empty(t, d.Requires)
		})
	}
}

func TestOOMScoreWithoutTheNodesMemory(t *testing.T) {
	for want, read := range map[string]func() (int64, error){
		"no meminfo":    func() (int64, error) { return 0, errors.New("no meminfo") },
		"it is 0 bytes": func() (int64, error) { return 0, nil },
	} {
		n := newNode(t)
		n.features, n.capacity = []string{contract.FeatureOOMScore}, read
		n.restart()
		_, err := n.prepare(n.claim(1, "numa-0", capacity{"memory": "4Gi"}))
		require.ErrorContains(t, err, "the OOM score depends on the node's memory: "+want)
	}
}
