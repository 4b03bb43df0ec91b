// SPDX-License-Identifier: Apache-2.0

package cpulayout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/cpulayout"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func cpus(t require.TestingT, list string) contract.CPUSet {
	set, err := contract.ParseCPUs(list)
	require.NoError(t, err)
	return set
}

// machine numbers cores as a rule does: core and l3 give the group of a CPU.
func machine(ids []int, core, l3 func(int) int) []topology.CPU {
	lowest := func(of func(int) int, id int) int {
		i := slices.IndexFunc(ids, func(other int) bool { return of(other) == of(id) })
		return ids[i]
	}
	var out []topology.CPU
	for _, id := range ids {
		out = append(out, topology.CPU{ID: id, Core: lowest(core, id), L3: lowest(l3, id)})
	}
	return out
}

func TestFind(t *testing.T) {
	zero := func(int) int { return 0 }
	for name, c := range map[string]struct {
		all       []topology.CPU
		claimable string
		want      string
	}{
		"second threads after all first threads, several L3s": {
			machine(cpus(t, "0-31,64-95").List(), func(i int) int { return i % 64 }, func(i int) int { return i % 64 / 8 }),
			"1-31,65-95", "1-31,65-95 core=cpu%64 l3=core/8",
		},
		"threads of a core side by side": {
			machine(cpus(t, "0-15").List(), func(i int) int { return i / 2 }, func(i int) int { return i / 8 }),
			"2-15", "2-15 core=cpu/2 l3=core/4",
		},
		"no second threads, one L3": {machine(cpus(t, "4-7").List(), func(i int) int { return i }, zero), "4-7", "4-7 core=cpu l3=0"},
		"even CPUs": {
			machine([]int{0, 2, 4, 6, 8, 10, 12, 14}, func(i int) int { return i % 8 }, zero),
			"2,4,6,10,12,14", "2-6/2,10-14/2 core=cpu%8 l3=0",
		},
		"four threads": {
			machine(cpus(t, "0-15").List(), func(i int) int { return i / 4 }, zero), "0-15", "0-15 core=cpu/4 l3=0",
		},
		"nothing to claim": {machine(cpus(t, "0-1").List(), func(i int) int { return i }, zero), "", ""},
		"cores of different sizes": {
			machine(cpus(t, "0-5").List(), func(i int) int { return min(i/2, 1) + max(0, i-3) }, zero), "0-5", "",
		},
		"L3s that no rule gives": {
			machine(cpus(t, "0-5").List(), func(i int) int { return i }, func(i int) int { return []int{0, 1, 1, 0, 1, 1}[i] }), "0-5", "",
		},
		"a text too long": {
			machine(cpus(t, "0-127").List(), func(i int) int { return i }, zero),
			"0,2,5,9,14,20,27,35,44,54,65,77,80,82,85,89,94,100,107,115,124", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, found := cpulayout.Find(c.all, cpus(t, c.claimable))
			if !found {
				require.Empty(t, c.want)
				return
			}
			require.Equal(t, c.want, l.String())
			again, err := cpulayout.Parse(c.want)
			require.NoError(t, err)
			require.Equal(t, l, again)
		})
	}
}

func TestFree(t *testing.T) {
	for name, c := range map[string]struct {
		layout, held string
		threads      int
		want         cpulayout.Blocks
	}{
		"all":                     {"0-31,64-95 core=cpu%64 l3=core/8", "", 2, cpulayout.Blocks{Cores: 32, L3s: 4, L3sTotal: 4, CoresOfL3: 8}},
		"one thread is held":      {"0-31,64-95 core=cpu%64 l3=core/8", "64", 2, cpulayout.Blocks{Cores: 31, L3s: 3, L3sTotal: 4, CoresOfL3: 8}},
		"a CPU of each L3":        {"0-15 core=cpu/2 l3=core/4", "1,8", 2, cpulayout.Blocks{Cores: 6, L3s: 0, L3sTotal: 2, CoresOfL3: 3}},
		"a reserved thread":       {"1-3 core=cpu/2 l3=0", "", 2, cpulayout.Blocks{Cores: 1, L3s: 1, L3sTotal: 1, CoresOfL3: 1}},
		"CPUs of another zone":    {"0-3 core=cpu l3=0", "9", 1, cpulayout.Blocks{Cores: 4, L3s: 1, L3sTotal: 1, CoresOfL3: 4}},
		"nothing":                 {"0-3 core=cpu l3=0", "0-3", 1, cpulayout.Blocks{L3sTotal: 1}},
		"the fuller L3 is larger": {"0-7 core=cpu l3=core/6", "6", 1, cpulayout.Blocks{Cores: 7, L3s: 1, L3sTotal: 2, CoresOfL3: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := cpulayout.Parse(c.layout)
			require.NoError(t, err)
			require.Equal(t, c.want, l.Free(cpus(t, c.held), c.threads))
		})
	}
}

// The shared pool keeps CPUs: claims cannot get all cores that are free.
func TestWithin(t *testing.T) {
	free := cpulayout.Blocks{Cores: 4, L3s: 1, L3sTotal: 2, CoresOfL3: 2}
	require.Equal(t, free, free.Within(8, 2))
	require.Equal(t, cpulayout.Blocks{Cores: 3, L3s: 1, L3sTotal: 2, CoresOfL3: 2}, free.Within(7, 2))
	require.Equal(t, cpulayout.Blocks{Cores: 1, L3s: 1, L3sTotal: 2, CoresOfL3: 1}, free.Within(3, 2))
	require.Zero(t, free.Within(-1, 0).Cores)
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no rule": "0-3", "another word": "0-3 core=cpu l3=core/0", "no id": "0-3,x core=cpu l3=0",
		"a long text": strings.Repeat("1,", 40) + "3 core=cpu l3=0", "too many CPUs": "0-99999 core=cpu l3=0",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cpulayout.Parse(text)
			require.ErrorContains(t, err, "layout")
		})
	}
}

// On each machine of the library, a layout that is found counts as the machine's own
// cores and L3s do, whatever is held.
func TestLayoutsAgreeWithMachines(t *testing.T) {
	found := 0
	for _, c := range topologytest.All() {
		m := c.Spec.Machine()
		for _, n := range m.NUMANodes {
			all := slices.DeleteFunc(slices.Clone(m.CPUs), func(cpu topology.CPU) bool { return cpu.Node != n.ID })
			l, ok := cpulayout.Find(all, n.CPUs)
			if !ok {
				continue
			}
			found++
			byID, threads := make(map[int]topology.CPU), 0
			for _, cpu := range all {
				byID[cpu.ID] = cpu
				if cpu.Core == all[0].Core {
					threads++
				}
			}
			read, err := cpulayout.Parse(l.String())
			require.NoError(t, err)
			rapid.Check(t, func(t *rapid.T) {
				held := contract.CPUs(rapid.SliceOfN(rapid.SampledFrom(n.CPUs.List()), 0, 8).Draw(t, "held")...)
				require.Equal(t, cpulayout.Count(n.CPUs, held, func(id int) cpulayout.Place {
					return cpulayout.Place{Core: byID[id].Core, L3: byID[id].L3, Threads: threads}
				}), read.Free(held, threads))
			})
		}
	}
	require.Positive(t, found)
}

func FuzzParse(f *testing.F) {
	f.Add("0-31,64-95 core=cpu%64 l3=core/8")
	f.Add("0-62/2 core=cpu/2 l3=0")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := cpulayout.Parse(text)
		if err != nil {
			// Quoting makes four bytes of one at most, and the text is quoted twice at most.
			require.Less(t, len(err.Error()), 8*cpulayout.MaxLength+100)
			return
		}
		l.Free(contract.CPUSet{}, 2)
	})
}
