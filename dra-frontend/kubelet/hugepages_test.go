// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
)

// A42: the hugepage limits of a container and its pod follow from the claims
// and the pod's own spec. A size that no claim names has no limit here.
func TestHugepages(t *testing.T) {
	type limits = map[string]contract.Limit
	type own = map[string]int64
	const unlimited, unchanged = `"hugepages":{"limits":"unlimited"}`, `"hugepages":{"limits":"unchanged"}`
	two := capacity{"hugepages_2Mi": "4Mi", "hugepages_1Gi": "2Gi"}
	for name, c := range map[string]struct {
		// claims are the capacities of claims 1, 2 .. on one container. params
		// are the parameters of their classes.
		claims []capacity
		params []string
		// own are the container's own limits.
		own       own
		container limits
		pod       contract.Files
	}{
		"several sizes": {
			claims:    []capacity{two},
			container: limits{"2Mi": 4 * mi, "1Gi": 2 * gi},
			pod: contract.Files{
				"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304",
				"hugetlb.1GB.max": "2147483648", "hugetlb.1GB.rsvd.max": "2147483648",
			},
		},
		"one size of two": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi", "hugepages_1Gi": "0"}},
			container: limits{"2Mi": 4 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304"},
		},
		"unlimited": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}},
			params:    []string{unlimited},
			container: limits{"2Mi": contract.Max},
			pod:       contract.Files{"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max"},
		},
		"unchanged": {
			claims: []capacity{two},
			params: []string{unchanged},
			own:    own{"2Mi": 8 * mi},
		},
		"a limit of its own below the claim": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}},
			own:       own{"2Mi": 2 * mi},
			container: limits{"2Mi": 4 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "6291456", "hugetlb.2MB.rsvd.max": "6291456"},
		},
		"a limit of its own above the claim": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}},
			own:       own{"2Mi": 8 * mi},
			container: limits{"2Mi": 8 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "12582912", "hugetlb.2MB.rsvd.max": "12582912"},
		},
		"a limit of its own of another size": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}},
			own:       own{"1Gi": gi},
			container: limits{"2Mi": 4 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "4194304", "hugetlb.2MB.rsvd.max": "4194304"},
		},
		"two claims": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}, two},
			container: limits{"2Mi": 8 * mi, "1Gi": 2 * gi},
			pod: contract.Files{
				"hugetlb.2MB.max": "8388608", "hugetlb.2MB.rsvd.max": "8388608",
				"hugetlb.1GB.max": "2147483648", "hugetlb.1GB.rsvd.max": "2147483648",
			},
		},
		"two claims, mirrored": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "6Mi"}},
			own:       own{"2Mi": 10 * mi},
			container: limits{"2Mi": 10 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "20971520", "hugetlb.2MB.rsvd.max": "20971520"},
		},
		"two claims and more of its own": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "6Mi"}},
			own:       own{"2Mi": 16 * mi},
			container: limits{"2Mi": 16 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "27262976", "hugetlb.2MB.rsvd.max": "27262976"},
		},
		"unlimited beside a limit": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "6Mi"}},
			params:    []string{"", unlimited},
			container: limits{"2Mi": contract.Max},
			pod:       contract.Files{"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max"},
		},
		"unchanged beside a limit, and more of its own": {
			claims:    []capacity{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "6Mi"}},
			params:    []string{unchanged},
			own:       own{"2Mi": 16 * mi},
			container: limits{"2Mi": 16 * mi},
			pod:       contract.Files{"hugetlb.2MB.max": "23068672", "hugetlb.2MB.rsvd.max": "23068672"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			var claims []*resourceapi.ResourceClaim
			var ids []int
			for i, amounts := range c.claims {
				claim := n.claim(i+1, "numa-0", amounts)
				if i < len(c.params) && c.params[i] != "" {
					configure(claim, ofClass(c.params[i]))
				}
				claims, ids = append(claims, claim), append(ids, i+1)
			}
			n.together(0, claims...)
			p := n.pods["pod"]
			p.Containers[0].Hugepages = c.own
			p.Hugepages = make(limits)
			for size, amount := range c.own {
				p.Hugepages[size] = contract.Limit(amount)
			}
			n.pods["pod"] = p
			require.NoError(t, n.prepareAll(claims...))
			require.Equal(t, c.container, n.merged(ids...).Hugepages)
			require.Equal(t, c.pod, n.state().Pods[uid(999)].Cgroup)

			// A claim that is prepared again beside the other claims gets the
			// same bytes.
			last := ids[len(ids)-1]
			want := n.bytes(last)
			require.NoError(t, n.unprepare(last))
			require.NoError(t, n.prepareAll(claims...))
			require.Equal(t, want, n.bytes(last))
		})
	}
}

// A42: an init container and the main container use the same claim. The larger
// of their own limits is kept.
func TestHugepagesOfTwoContainers(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"hugepages_2Mi": "4Mi"})
	use := []decision.ClaimReference{{Claim: "claim-1"}}
	n.pod(decision.Pod{Containers: []decision.Container{
		{Name: "init", Claims: use, Hugepages: map[string]int64{"2Mi": 8 * mi}},
		{Name: "main", BesideMain: true, Claims: use, Hugepages: map[string]int64{"2Mi": 6 * mi}},
	}}, c)
	require.NoError(t, n.prepareAll(c))
	require.Equal(t, map[string]contract.Limit{"2Mi": 8 * mi}, n.record(1).Results[0].Decision.Hugepages)
}

// A42: with nodeAllocatable the scheduler counts the spec and the claims, and
// kubelet allows a container the sum. So does the decision: limited to the
// larger of the two, the container could not use what it was given.
func TestHugepagesCountedWithTheSpec(t *testing.T) {
	for name, c := range map[string]struct {
		claims []capacity
		own    int64
		params string
		want   contract.Limit
	}{
		"no spec":              {claims: []capacity{{"hugepages_2Mi": "4Mi"}}, want: 4 * mi},
		"spec below the claim": {claims: []capacity{{"hugepages_2Mi": "4Mi"}}, own: 2 * mi, want: 6 * mi},
		"spec above the claim": {claims: []capacity{{"hugepages_2Mi": "4Mi"}}, own: 8 * mi, want: 12 * mi},
		"two claims":           {claims: []capacity{{"hugepages_2Mi": "4Mi"}, {"hugepages_2Mi": "6Mi"}}, own: 2 * mi, want: 12 * mi},
		"unlimited": {
			claims: []capacity{{"hugepages_2Mi": "4Mi"}},
			own:    2 * mi,
			params: `"hugepages":{"limits":"unlimited"}`,
			want:   contract.Max,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.config.NodeAllocatable = true
			n.restart()
			var claims []*resourceapi.ResourceClaim
			var ids []int
			for i, amounts := range c.claims {
				claims, ids = append(claims, n.claim(i+1, "numa-0", amounts)), append(ids, i+1)
				if c.params != "" {
					configure(claims[i], ofClass(c.params))
				}
			}
			n.together(0, claims...)
			p := n.pods["pod"]
			p.Containers[0].Hugepages = map[string]int64{"2Mi": c.own}
			p.Hugepages = map[string]contract.Limit{"2Mi": contract.Limit(c.own)}
			n.pods["pod"] = p
			require.NoError(t, n.prepareAll(claims...))
			require.Equal(t, map[string]contract.Limit{"2Mi": c.want}, n.merged(ids...).Hugepages)
		})
	}
}
