// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// partitioned returns pods that each have a container with a partition, as they shall be and as they are.
func partitioned(partitions int) (desired map[string]tree.Cgroup, observed map[string]tree.State) {
	desired, observed = make(map[string]tree.Cgroup), make(map[string]tree.State)
	add := func(dir string, kind tree.Kind, files contract.Files) {
		desired[dir] = tree.Cgroup{Kind: kind, Files: files}
		observed[dir] = tree.State{Files: files, Former: contract.Files{contract.FileExclusive: ""}, Written: files}
	}
	add("kubepods", tree.Level, contract.Files{contract.FileExclusive: fmt.Sprintf("0-%d", partitions-1)})
	for i := range partitions {
		cpus, pod := strconv.Itoa(i), fmt.Sprintf("kubepods/pod%d", i)
		add(pod, tree.Pod, contract.Files{contract.FileExclusive: cpus})
		add(pod+"/c", tree.Partitioned, contract.Files{
			tree.FileCPUs: cpus, contract.FileExclusive: cpus, contract.FilePartition: contract.PartitionRoot,
		})
	}
	return desired, observed
}

// A plan with nothing to write does work for each partition, and not for each pair of them: each
// creation of a partition plans for all pods.
func TestStepsOfManyPartitions(t *testing.T) {
	work := func(partitions int) float64 {
		desired, observed := partitioned(partitions)
		return testing.AllocsPerRun(3, func() { require.Empty(t, tree.Steps(desired, observed)) })
	}
	require.Less(t, work(400), 5*work(100))
}

func BenchmarkSteps(b *testing.B) {
	for _, partitions := range []int{1, 100, 500} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			desired, observed := partitioned(partitions)
			b.ReportAllocs()
			for b.Loop() {
				require.Empty(b, tree.Steps(desired, observed))
			}
		})
	}
}
