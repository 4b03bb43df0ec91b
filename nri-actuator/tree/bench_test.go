// SPDX-License-Identifier: Apache-2.0

package tree_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/tree"
)

// BenchmarkSteps measures a plan with nothing to write.
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
