// SPDX-License-Identifier: Apache-2.0

package nodestate_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/nodestate"
)

func partition(cpus string) contract.Decision {
	return contract.Decision{CPUs: contracttest.CPUs(cpus), Partition: contract.PartitionRoot}
}

// The kernel takes partition CPUs out of the pool if the levels above have them
// in cpuset.cpus.exclusive.
func TestPartitions(t *testing.T) {
	b := base
	b.CPUs, b.UnmanagedCPUs = contract.CPUs(0, 1, 2, 3, 4, 5, 6, 7), contract.CPUs(8, 9)
	guaranteed := contract.PodRecord{UID: uid(101)}
	burstable := contract.PodRecord{UID: uid(102), QOS: contract.LevelBurstable}
	bestEffort := contract.PodRecord{UID: uid(103), QOS: contract.LevelBestEffort}
	pooled := contract.Decision{CPUs: contracttest.CPUs("7")}
	for name, c := range map[string]struct {
		claims         []contract.ClaimRecord
		shared, others string
		levels, pods   map[string]string
	}{
		"none, as an older frontend wrote it": {
			claims: []contract.ClaimRecord{claim(1, burstable, pooled)},
			shared: "0-6",
			others: "8-9",
			pods:   map[string]string{uid(102): ""},
		},
		"on each level": {
			claims: []contract.ClaimRecord{
				claim(1, guaranteed, partition("1")),
				claim(2, burstable, partition("2-3")),
				claim(3, bestEffort, partition("4")),
			},
			shared: "0-7",
			others: "8-9",
			levels: map[string]string{"": "1-4", "burstable": "2-3", "besteffort": "4"},
			pods:   map[string]string{uid(101): "1", uid(102): "2-3", uid(103): "4"},
		},
		"of one pod, beside the pool": {
			claims: []contract.ClaimRecord{
				claim(1, burstable, partition("1"), pooled),
				claim(2, burstable, partition("5"), contract.Decision{Mems: contracttest.NUMANodes("0")}),
			},
			shared: "0-6",
			others: "8-9",
			levels: map[string]string{"": "1,5", "burstable": "1,5"},
			pods:   map[string]string{uid(102): "1,5"},
		},
		"of CPUs that are someone else's now": {
			claims: []contract.ClaimRecord{claim(1, guaranteed, partition("8"))},
			shared: "0-7",
			others: "9",
			levels: map[string]string{"": "8"},
			pods:   map[string]string{uid(101): "8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := nodestate.Compute(b, c.claims)
			require.NoError(t, err)
			require.Equal(t, contract.Shared{
				CPUs: contracttest.CPUs(c.shared), Mems: contracttest.NUMANodes("0"), UnmanagedCPUs: contracttest.CPUs(c.others),
			}, s.Shared)
			require.Len(t, s.PartitionCPUs, len(c.levels))
			for level, cpus := range c.levels {
				require.Equal(t, cpus, s.PartitionCPUs[level].String(), level)
			}
			pods := make(map[string]string)
			for uid, p := range s.Pods {
				pods[uid] = p.PartitionCPUs.String()
				require.Equal(t, !p.PartitionCPUs.IsEmpty(), slices.Equal(p.Requires, []string{contract.FeaturePartition}), p.Requires)
			}
			require.Equal(t, c.pods, pods)
			_, err = contract.EncodeNode(s)
			require.NoError(t, err)
		})
	}
}

// I7: pool containers run on the CPUs that partitions leave, whatever their
// cpuset.cpus names.
func TestPoolOfPartitionsIsRefused(t *testing.T) {
	_, err := nodestate.Compute(base, []contract.ClaimRecord{
		claim(1, contract.PodRecord{UID: uid(101)}, partition("0-2")),
		claim(2, contract.PodRecord{UID: uid(101)}, contract.Decision{CPUs: contracttest.CPUs("3")}),
	})
	require.ErrorContains(t, err, "no CPU would be left")
	_, err = nodestate.Compute(base, []contract.ClaimRecord{claim(1, contract.PodRecord{UID: uid(101)}, partition("0-3"))})
	require.ErrorContains(t, err, "no CPU would be left")
}

// Each pod and level has the union of the partition CPUs below it. The pool
// leaves out all other claimed CPUs. Claimed CPUs are not unmanaged.
func TestPartitionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := base
		b.CPUs, b.UnmanagedCPUs = contract.CPUs(), contract.CPUs()
		var holders [32]int // 0 for no claim, else the claim's number
		for cpu := range 32 {
			if rapid.Bool().Draw(t, "managed") {
				b.CPUs = b.CPUs.Union(contract.CPUs(cpu))
			} else {
				b.UnmanagedCPUs = b.UnmanagedCPUs.Union(contract.CPUs(cpu))
			}
			holders[cpu] = rapid.IntRange(0, 6).Draw(t, "holder")
		}
		levels := []string{contract.LevelKubepods, contract.LevelBurstable, contract.LevelBestEffort}
		podLevels := rapid.SliceOfN(rapid.SampledFrom(levels), 3, 3).Draw(t, "levels")
		below := map[string]contract.CPUSet{}
		kernel, pooled := contract.CPUs(), contract.CPUs()
		var claims []contract.ClaimRecord
		for i := 1; i <= 6; i++ {
			held := contract.CPUs()
			for cpu, holder := range holders {
				if holder == i {
					held = held.Union(contract.CPUs(cpu))
				}
			}
			pod := rapid.IntRange(0, 2).Draw(t, "pod")
			d := contract.Decision{CPUs: held}
			if !held.IsEmpty() && rapid.Bool().Draw(t, "partition") {
				d.Partition = rapid.SampledFrom(contract.PartitionKinds()).Draw(t, "kind")
				kernel = kernel.Union(held)
				for _, of := range slices.Compact([]string{uid(100 + pod), "level", "level " + podLevels[pod]}) {
					below[of] = below[of].Union(held)
				}
			} else {
				pooled = pooled.Union(held)
			}
			claims = append(claims, claim(i, contract.PodRecord{UID: uid(100 + pod), QOS: podLevels[pod]}, d))
		}
		s, err := nodestate.Compute(b, claims)
		if b.CPUs.IsSubsetOf(kernel.Union(pooled)) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		shared := s.Shared.CPUs
		require.Equal(t, b.CPUs.Difference(pooled), shared)
		require.Equal(t, kernel, s.PartitionCPUs[contract.LevelKubepods])
		require.True(t, kernel.Intersection(pooled).IsEmpty())
		require.False(t, shared.Difference(kernel).IsEmpty(), "I7")
		require.True(t, s.Shared.UnmanagedCPUs.Intersection(kernel.Union(pooled)).IsEmpty())
		for _, level := range levels[1:] {
			require.Equal(t, below["level "+level], s.PartitionCPUs[level])
		}
		for uid, p := range s.Pods {
			require.Equal(t, below[uid], p.PartitionCPUs)
		}
	})
}
