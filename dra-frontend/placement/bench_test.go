// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

func BenchmarkControl(b *testing.B) { contracttest.Controls(b) }

// Machines of 8 to 4096 CPUs as one zone, with a third of the CPUs taken at
// random.
func BenchmarkPick(b *testing.B) {
	for _, size := range []struct{ sockets, nodes, l3s, cores int }{{1, 1, 1, 4}, {1, 1, 4, 8}, {4, 2, 4, 8}, {8, 8, 4, 8}} {
		m := tree(size.sockets, size.nodes, size.l3s, size.cores, 2)
		l, random := placement.NewLayout(m), rand.New(rand.NewPCG(1, 1))
		var ids []int
		for _, c := range m.CPUs {
			if random.IntN(3) > 0 {
				ids = append(ids, c.ID)
			}
		}
		free := contract.CPUs(ids...)
		for _, c := range []struct {
			name    string
			free    contract.CPUSet
			n       int
			options placement.Options
		}{
			{"4", free, 4, placement.Options{}},
			{"odd", free, 3, placement.Options{}},
			{"an L3", m.Online(), min(16, len(m.CPUs)), placement.Options{}},
			{"two L3s", free, min(20, len(m.CPUs)/2), placement.Options{}},
			{"half", free, len(m.CPUs) / 2, placement.Options{}},
			{"spread", free, len(m.CPUs) / 4, placement.Options{Placement: placement.Spread}},
			{"whole cores", m.Online(), len(m.CPUs) / 4, placement.Options{WholeCores: true}},
			{"whole L3s", m.Online(), max(8, len(m.CPUs)/4/16*16), placement.Options{WholeL3: true}},
		} {
			b.Run(fmt.Sprintf("%d CPUs/%s", len(m.CPUs), c.name), func(b *testing.B) {
				b.ReportAllocs()
				times := contracttest.NewTimes()
				for b.Loop() {
					times.Measure(func() {
						_, err := l.Pick(c.free, c.n, c.options)
						require.NoError(b, err)
					})
				}
				times.Report(b)
			})
		}
	}
}

// Large machines as one zone, from empty to nearly full: a claim of four CPUs.
func BenchmarkPick_Full(b *testing.B) {
	for _, size := range []struct{ sockets, nodes, l3s, cores int }{{4, 2, 4, 8}, {8, 8, 4, 8}} {
		m := tree(size.sockets, size.nodes, size.l3s, size.cores, 2)
		l, random := placement.NewLayout(m), rand.New(rand.NewPCG(1, 1))
		for _, percent := range []int{0, 50, 95} {
			var ids []int
			for _, c := range m.CPUs {
				if random.IntN(100) >= percent {
					ids = append(ids, c.ID)
				}
			}
			free := contract.CPUs(ids...)
			b.Run(fmt.Sprintf("%d CPUs/%d %% taken", len(m.CPUs), percent), func(b *testing.B) {
				b.ReportAllocs()
				times := contracttest.NewTimes()
				for b.Loop() {
					times.Measure(func() {
						_, err := l.Pick(free, 4, placement.Options{})
						require.NoError(b, err)
					})
				}
				times.Report(b)
			})
		}
	}
}
