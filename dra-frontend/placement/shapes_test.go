// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// asymmetric has a socket of 8 cores in two L3s and one of 4, two threads each.
func asymmetric() topology.Machine {
	b := &builder{}
	b.addL3(0, 0, standard, 2, 2, 2, 2)
	b.addL3(0, 0, standard, 2, 2, 2, 2)
	b.addL3(1, 1, standard, 2, 2, 2, 2)
	return b.machine(flat)
}

// halves has one NUMA node with the CPUs of two sockets: an L3 of 3 CPUs, and L3s of 3
// and 4.
func halves() topology.Machine {
	b := &builder{}
	b.addL3(0, 0, standard, 1, 1, 1)
	b.addL3(1, 0, standard, 1, 1, 1)
	b.addL3(1, 0, standard, 1, 1, 1, 1)
	return b.machine(flat)
}

// triangle has three NUMA nodes of two CPUs, on these sockets. The first and the last are
// near to each other.
func triangle(sockets ...int) topology.Machine {
	b := &builder{}
	for node, socket := range sockets {
		b.addL3(socket, node, standard, 1, 1)
	}
	return b.machine(func(x, y int) int {
		switch {
		case x == y:
			return 10
		case x != 1 && y != 1:
			return 11
		}
		return 32
	})
}

// chain has three sockets of two CPUs. The last is near to both others. The CPUs of the
// first have an L3 each.
func chain() topology.Machine {
	b := &builder{}
	b.addL3(0, 0, standard, 1)
	b.addL3(0, 0, standard, 1)
	b.addL3(1, 1, standard, 1, 1)
	b.addL3(2, 2, standard, 1, 1)
	return b.machine(func(x, y int) int {
		switch {
		case x == y:
			return 10
		case x == 2 || y == 2:
			return 20
		}
		return 32
	})
}

// hybrid has efficiency cores in two L3s. The second L3 also has two performance cores of
// two threads.
func hybrid() topology.Machine {
	b := &builder{}
	b.addL3(0, 0, efficiency, 1, 1)
	second := []topology.CPUType{topology.CPUEfficiency, topology.CPUPerformance, topology.CPUPerformance}
	b.addL3(0, 0, func() (kind topology.CPUType) {
		kind, second = second[0], second[1:]
		return kind
	}, 1, 2, 2)
	return b.machine(flat)
}

// steps has three L3s, each with a core of another size.
func steps() topology.Machine {
	b := &builder{}
	for _, threads := range []int{2, 4, 1} {
		b.addL3(0, 0, standard, threads)
	}
	return b.machine(flat)
}

// sparse renumbers the CPUs with gaps.
func sparse(m topology.Machine, gap int) topology.Machine {
	at := func(id int) int { return 7 + id*gap }
	for i := range m.CPUs {
		c := &m.CPUs[i]
		c.ID, c.Core, c.Cluster, c.L3 = at(c.ID), at(c.Core), at(c.Cluster), at(c.L3)
	}
	for i, n := range m.NUMANodes {
		var ids []int
		for _, id := range n.CPUs.List() {
			ids = append(ids, at(id))
		}
		m.NUMANodes[i].CPUs = contract.CPUs(ids...)
	}
	return m
}

func TestShapes(t *testing.T) {
	smt4, t8 := tree(1, 1, 2, 3, 4), topologytest.T8().Machine()
	whole, l3 := placement.Options{WholeCores: true}, placement.Options{WholeL3: true}
	for _, c := range []struct {
		name    string
		machine topology.Machine
		free    string
		n       int
		options placement.Options
		want    string
	}{
		{"4 threads: a whole core", smt4, "1-23", 4, placement.Options{}, "4-7"},
		{"4 threads: the broken core that fits", smt4, "0-2,4-5,8-23", 2, placement.Options{}, "4-5"},
		{"4 threads: a broken core before a whole one", smt4, "2-23", 2, placement.Options{}, "2-3"},
		{"4 threads: one core broken, not two shared", smt4, "3,7,8-23", 2, placement.Options{}, "8-9"},
		{"4 threads: whole and a rest", smt4, "3,4-23", 5, placement.Options{}, "3-7"},
		{"4 threads: whole cores", smt4, "1-23", 8, whole, "4-11"},
		{"4 threads: spread", smt4, "0-23", 4, placement.Options{Placement: placement.Spread}, "0,4,12,16"},
		{"T8, offline siblings: a core is what is online", t8, "0-2,4-6,8-10", 3, whole, "0-2"},
		{"T8, offline siblings: the core that fits", t8, t8.NUMANodes[0].CPUs.String(), 3, placement.Options{}, "0-2"},
		{"T8, offline siblings: whole L3", t8, t8.Online().String(), t8.NUMANodes[0].CPUs.Size(), l3, t8.NUMANodes[0].CPUs.String()},
		{"asymmetric: the small socket", asymmetric(), "0-23", 8, placement.Options{}, "16-23"},
		{"asymmetric: what only the large one has", asymmetric(), "0-23", 10, placement.Options{}, "0-9"},
		{"asymmetric: more than a socket", asymmetric(), "0-7,16-23", 12, placement.Options{}, "0-7,16-19"},
		{"two sockets of a node: one socket before whole L3s", halves(), "0-9", 6, placement.Options{}, "3-8"},
		{"three nodes: the near ones", triangle(0, 0, 0), "0-5", 4, placement.Options{}, "0-1,4-5"},
		{"three nodes: one socket before near ones", triangle(0, 0, 1), "0-5", 4, placement.Options{}, "0-3"},
		{"three sockets: the pair with fewer L3s", chain(), "0-5", 4, placement.Options{}, "2-5"},
		{"cores of three sizes: two whole cores before a part of one", steps(), "0-6", 3, placement.Options{}, "0-1,6"},
		{"sparse ids", sparse(tree(1, 1, 2, 2, 2), 100), "7,107,207,307,407,507", 2, placement.Options{}, "407,507"},
		{"sparse ids, and CPUs that the machine lacks", sparse(tree(1, 1, 2, 2, 2), 100), "0-107", 2, placement.Options{}, "7,107"},
		{"whole cores of one kind before an L3 with both kinds", hybrid(), "0-6", 3, whole, "0-2"},
		{"one CPU", tree(1, 1, 1, 1, 1), "0", 1, placement.Options{}, "0"},
		{"one CPU, whole", tree(1, 1, 1, 1, 1), "0", 1, l3, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := placement.NewLayout(c.machine).Pick(parse(t, c.free), c.n, c.options)
			require.NoError(t, err)
			require.Equal(t, c.want, got.String())
		})
	}
}

// Machines of 1 to 4096 CPUs: every option picks the wanted number of free
// CPUs, with and without other claims.
func TestSizes(t *testing.T) {
	for _, m := range []topology.Machine{
		tree(1, 1, 1, 1, 1), tree(1, 1, 1, 1, 2), tree(1, 1, 1, 3, 1), tree(2, 1, 1, 4, 4), asymmetric(), sparse(tree(2, 2, 2, 4, 2), 9),
		tree(2, 1, 1, 96, 2), tree(4, 2, 4, 8, 2), tree(1, 1, 1, 512, 2), tree(8, 8, 4, 8, 2),
	} {
		t.Run(fmt.Sprintf("%d CPUs", len(m.CPUs)), func(t *testing.T) {
			l, random := placement.NewLayout(m), rand.New(rand.NewPCG(1, 2))
			var some []int
			for _, c := range m.CPUs {
				if random.IntN(4) > 0 {
					some = append(some, c.ID)
				}
			}
			for _, free := range []contract.CPUSet{m.Online(), contract.CPUs(some...)} {
				for _, n := range []int{1, free.Size() / 3, free.Size() / 2, free.Size() - 1, free.Size()} {
					for _, o := range []placement.Options{{}, {Placement: placement.Spread}, {WholeCores: true}, {WholeL3: true}} {
						if n < 0 || n > free.Size() {
							continue
						}
						got, err := l.Pick(free, n, o)
						if err != nil {
							require.True(t, o.WholeCores || o.WholeL3, "I2: %v", err)
							continue
						}
						require.Equal(t, n, got.Size())
						require.True(t, got.IsSubsetOf(free))
					}
				}
			}
		})
	}
}

// A wanted kind is the only kind that is taken, up to all its free CPUs.
// Without a wish, kinds are mixed only if no kind has enough.
func TestKindLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawSmall(t)
		free := drawFree(t, m)
		of := make(map[topology.CPUType][]int)
		for _, c := range m.CPUs {
			if free.Contains(c.ID) {
				of[c.Type] = append(of[c.Type], c.ID)
			}
		}
		l, n := placement.NewLayout(m), rapid.IntRange(1, 16).Draw(t, "n")
		o := placement.Options{Placement: rapid.SampledFrom([]string{placement.Packed, placement.Spread}).Draw(t, "placement")}
		enough := false
		for _, ids := range of {
			enough = enough || len(ids) >= n
		}
		if got, err := l.Pick(free, n, o); err == nil {
			pure := false
			for _, ids := range of {
				pure = pure || got.IsSubsetOf(contract.CPUs(ids...))
			}
			require.Equal(t, enough, pure, "%s of %s", got, free)
		}
		for _, kind := range []topology.CPUType{topology.CPUPerformance, topology.CPUEfficiency} {
			o.Cores = string(kind)
			got, err := l.Pick(free, n, o)
			require.Equal(t, len(of[kind]) >= n, err == nil, "%v", err)
			require.True(t, got.IsSubsetOf(contract.CPUs(of[kind]...)))
		}
	})
}
