// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/decision"
)

// A76: a claim brings a hugetlbfs mount for each of its page sizes, where the
// kernel mounts a hugetlbfs and the pod has no mount of its own.
func TestHugetlbfs(t *testing.T) {
	both := capacity{"hugepages_2Mi": "4Mi", "hugepages_1Gi": "1Gi"}
	main := func(edit func(*decision.Container)) decision.Pod {
		c := using("main", true, ref("claim-1"))
		if edit != nil {
			edit(&c)
		}
		return decision.Pod{Containers: []decision.Container{c, {Name: "other", BesideMain: true, MountPaths: []string{"/dev/hugepages-1Gi"}}}}
	}
	own, kata := main(nil), main(nil)
	own.UserNamespace, kata.RuntimeClass = true, "kata"
	for name, c := range map[string]struct {
		asked      capacity
		parameters string
		pod        decision.Pod
		want       []string
		err        string
	}{
		"both sizes":       {both, "", main(nil), []string{"1Gi", "2Mi"}, ""},
		"one size":         {capacity{"hugepages_2Mi": "4Mi", "memory": "1Gi"}, "", main(nil), []string{"2Mi"}, ""},
		"no hugepages":     {capacity{"memory": "1Gi"}, `"hugepages":{"mount":true}`, own, nil, ""},
		"not wanted":       {both, `"hugepages":{"mount":false}`, main(nil), nil, ""},
		"kubelet's limits": {both, `"hugepages":{"limits":"unchanged"}`, main(nil), []string{"1Gi", "2Mi"}, ""},
		"a volume at the path": {
			asked: both,
			pod:   main(func(c *decision.Container) { c.MountPaths = []string{"/x", "/dev/hugepages-2Mi/"} }),
			want:  []string{"1Gi"},
		},
		"a volume elsewhere": {
			asked: both,
			pod:   main(func(c *decision.Container) { c.MountPaths = []string{"/dev/hugepages"} }),
			want:  []string{"1Gi", "2Mi"},
		},
		"user namespace":        {both, "", own, nil, ""},
		"runtime class":         {both, "", kata, nil, ""},
		"runtime class, wanted": {both, `"hugepages":{"mount":true}`, kata, []string{"1Gi", "2Mi"}, ""},
		"user namespace, wanted": {
			asked:      both,
			parameters: `"hugepages":{"mount":true}`,
			pod:        own,
			err:        "hugepages.mount: true, but pod pod has a user namespace of its own (hostUsers: false)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			claim := isolation(n.claim(1, "numa-0", c.asked), c.parameters)
			n.pod(c.pod, claim)
			_, err := n.prepare(claim)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, n.record(1).Results[0].Hugetlbfs)
		})
	}
}
