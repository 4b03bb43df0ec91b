// SPDX-License-Identifier: Apache-2.0

package nri_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// BenchmarkCreateExclusive measures how long the runtime holds its node-wide
// lock to create a container with claimed CPUs. The actuator looks at all pool
// containers and, in the second form, moves them.
func BenchmarkCreateExclusive(b *testing.B) {
	for _, containers := range []int{0, 100, 500} {
		for _, move := range []bool{false, true} {
			b.Run(fmt.Sprintf("containers=%d/move=%t", containers, move), func(b *testing.B) {
				r := newRuntime(b, b.TempDir())
				for i := range containers {
					r.run(fmt.Sprintf("c%03d", i), testnode.UID(1000+i/5))
				}
				env := r.node.Prepare(podA, claimA, contract.Decision{CPUs: contracttest.CPUs("4-7")})
				pod := sandbox(podA)
				c, err := r.create("exclusive", podA, env...)
				require.NoError(b, err)
				for i := 0; b.Loop(); i++ {
					if move {
						b.StopTimer()
						r.node.Change(func(s *contract.NodeState) { s.Shared.CPUs = contracttest.CPUs([]string{"0-3", "8-15"}[i%2]) })
						b.StartTimer()
					}
					_, _, err := r.session.CreateContainer(b.Context(), pod, c.api)
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkDrift measures the periodic comparison of everything with the
// kernel, with nothing to repair. Each container has a claim with memory and
// hugepages. The cgroups are the model: the cluster tests measure cgroupfs.
func BenchmarkDrift(b *testing.B) {
	for _, containers := range []int{0, 100, 500} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			r := newRuntime(b, b.TempDir())
			for i := range containers {
				pod, claim := testnode.UID(1000+i), testnode.UID(5000+i)
				env := r.node.Prepare(pod, claim, contract.Decision{Mems: contracttest.NUMANodes("0"),
					Memory:    &contract.Memory{Min: 1 << 30, High: contract.Max, Max: 1 << 30},
					Hugepages: map[string]contract.Limit{"2Mi": 64 << 20}})
				r.run(fmt.Sprintf("c%03d", i), pod, env...)
			}
			r.node.Change(func(s *contract.NodeState) {
				for uid, pod := range s.Pods {
					pod.Cgroup = contract.Files{
						"memory.min": "1073741824", "hugetlb.2MB.max": "67108864", "hugetlb.2MB.rsvd.max": "67108864",
					}
					s.Pods[uid] = pod
				}
				s.Ancestors = map[string]contract.Files{"": {"memory.min": "4096"}, "burstable": {"memory.min": "4096"}}
			})
			require.NoError(b, r.plugin.Apply(b.Context()))
			for b.Loop() {
				require.NoError(b, r.plugin.Apply(b.Context()))
			}
			require.Zero(b, r.metric("cpumem_actuator_repaired_total"))
		})
	}
}
