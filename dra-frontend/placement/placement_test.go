// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func parse(t testing.TB, list string) contract.CPUSet {
	t.Helper()
	s, err := contract.ParseCPUs(list)
	require.NoError(t, err)
	return s
}

func TestPick(t *testing.T) {
	t1, t2, t4, t5 := topologytest.T1().Machine(), topologytest.T2().Machine(), topologytest.T4().Machine(), topologytest.T5().Machine()
	smt8 := topologytest.T8()
	for i := range smt8.CPUs {
		smt8.CPUs[i].Core, smt8.CPUs[i].Offline = smt8.CPUs[i].ID/8, false
	}
	t8 := smt8.Machine()
	spread, cores := placement.Options{Placement: placement.Spread}, placement.Options{WholeCores: true}
	for _, c := range []struct {
		name    string
		machine topology.Machine
		free    string
		n       int
		options placement.Options
		want    string
	}{
		{"A10 T1: a whole core", t1, "0-3", 2, placement.Options{}, "0,2"},
		{"A10 T2: a whole zone", t2, "2-3,6-7", 4, placement.Options{}, "2-3,6-7"},
		{"A10 T2: beside a reserved core", t2, "1,5", 2, placement.Options{}, "1,5"},
		{"A10 T1: the other core", t1, "1,3", 2, placement.Options{}, "1,3"},
		{"A10 T2: one CPU of a zone", t2, "0-1,4-5", 1, placement.Options{}, "0"},
		{"A10 T2: three more of it", t2, "1,4-5", 3, placement.Options{}, "1,4-5"},
		{"a single thread takes the broken core", t2, "1,4-5", 1, placement.Options{}, "4"},
		{"an odd rest takes the broken core", t4, "0-7,257-263", 3, placement.Options{}, "0-1,257"},
		{"a whole core elsewhere before two shared ones", t4, "0-1,8,264", 2, placement.Options{}, "8,264"},
		{"the tightest L3", t4, "0-7,8-11,256-263,264-267,16-21,272-277", 8, placement.Options{}, "8-11,264-267"},
		{
			name:    "two L3s of one node, the larger first",
			machine: t4,
			free:    "0-3,256-259,8-13,264-269,16-17,272-273",
			n:       16,
			options: placement.Options{},
			want:    "8-13,16-17,264-269,272-273",
		},
		{"one node before another", t4, "0-7,256-263,32-47,288-303", 24, placement.Options{}, "32-43,288-299"},
		{"more than a node: the other node of the socket", t4, "0-31,256-287,64-127,320-383", 80, placement.Options{}, "64-103,320-359"},
		{"zero", t1, "0-3", 0, placement.Options{}, ""},
		{"T5: the large cores are kept whole", t5, "0-31", 2, placement.Options{}, "16-17"},
		{"T5: an odd one breaks no core, of one kind", t5, "0-31", 3, placement.Options{}, "16-18"},
		{"T5: the kind with less left", t5, "0-3,16-31", 2, placement.Options{}, "0-1"},
		{"T5: both kinds only where neither has enough", t5, "0-31", 18, placement.Options{}, "0-1,16-31"},
		{"T5: one efficiency core", t5, "0-31", 1, placement.Options{}, "16"},
		{"SMT8: the rest from one broken core", t8, "0-7,8-9,11-15", 10, placement.Options{}, "0-9"},
		{"A11 spread: two cores", t2, "0-1,4-5", 2, spread, "0-1"},
		{"A11 spread: then siblings", t2, "0-1,4-5", 3, spread, "0-1,4"},
		{
			name:    "A11 spread: over L3s",
			machine: t4,
			free:    "0-511",
			n:       33,
			options: spread,
			want:    "0-1,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120,128,136,144,152,160,168,176,184,192,200,208,216,224,232,240,248",
		},
		{"A11 spread: an unshared core first", t2, "1,4-5", 2, spread, "1,4"},
		{"A11 whole cores", t2, "1,4-5", 2, cores, "1,5"},
		{"A11 whole cores of two sizes", t5, "0-31", 17, cores, "0-1,16-30"},
		{"A11 whole cores, spread", t4, "0-15,256-271", 4, placement.Options{WholeCores: true, Placement: placement.Spread}, "0,8,256,264"},
		{"A11 whole L3", t4, "1-31,256-287", 16, placement.Options{WholeL3: true}, "8-15,264-271"},
		{"A11 two whole L3s of one node", t4, "0-7,256-263,32-47,288-303", 32, placement.Options{WholeL3: true}, "32-47,288-303"},
		{"CPUs the machine does not have", t1, "0-9", 4, placement.Options{}, "0-3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := placement.NewLayout(c.machine).Pick(parse(t, c.free), c.n, c.options)
			require.NoError(t, err)
			require.Equal(t, c.want, got.String())
		})
	}
}

func TestRefused(t *testing.T) {
	t1, t2, t4 := topologytest.T1().Machine(), topologytest.T2().Machine(), topologytest.T4().Machine()
	uneven := &builder{}
	uneven.addL3(0, 0, standard, 1, 1, 1, 1)
	uneven.addL3(0, 0, standard, 1, 1)
	cores, l3 := placement.Options{WholeCores: true}, placement.Options{WholeL3: true}
	for _, c := range []struct {
		name    string
		machine topology.Machine
		free    string
		n       int
		options placement.Options
		want    string
	}{
		{"A10 more than are left", t2, "1,4-5", 4, placement.Options{}, "4 CPUs wanted, 3 free in the zone"},
		{"none free", t2, "", 1, placement.Options{}, "1 CPUs wanted, 0 free"},
		{"CPUs the machine does not have", t1, "0-9", 5, placement.Options{}, "5 CPUs wanted, 4 free"},
		{"negative", t1, "0-3", -1, placement.Options{}, "cannot pick -1 CPUs"},
		{"unknown placement", t1, "0-3", 1, placement.Options{Placement: "tidy"}, `placement "tidy"`},
		{"A11 wholeCores with 3", t2, "0-1,4-5", 3, cores, "3 CPUs do not make up whole free cores of the zone: claim 2 or 4"},
		{"A11 wholeCores with 3, two left", t2, "1,4-5", 3, cores, "3 CPUs do not make up whole free cores of the zone: claim 2"},
		{"A11 wholeCores with 1", t2, "0-1,4-5", 1, cores, "1 CPUs do not make up whole free cores of the zone: claim 2"},
		{"A11 wholeCores with broken ones", t2, "0-1", 2, cores, "no whole cores are free"},
		{"A11 wholeL3", t4, "0-511", 24, l3, "24 CPUs do not make up whole free L3 caches of the zone: claim 16 or 32"},
		{"A11 wholeL3 beside a used one", t4, "0-7,9-15,256-271", 24, l3, "24 CPUs do not make up whole free L3 caches of the zone: claim 16"},
		{
			name:    "A11 wholeL3 beside two used ones",
			machine: t4,
			free:    "0-7,9-15,17-23,256-279",
			n:       24,
			options: l3,
			want:    "24 CPUs do not make up whole free L3 caches of the zone: claim 16",
		},
		{"A11 wholeL3 beside a smaller used one", uneven.machine(flat), "0-4", 3, l3, "L3 caches of the zone: claim 4"},
		{"A11 wholeL3 of a used one", t2, "1,4-5", 2, l3, "no whole L3 caches are free"},
		{"A11 wholeL3 smaller than one", t2, "0-1,4-5", 2, l3, "claim 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := placement.NewLayout(c.machine).Pick(parse(t, c.free), c.n, c.options)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A machine without CPUs has nothing to pick, and does not panic.
func TestEmptyLayout(t *testing.T) {
	l := placement.NewLayout(topology.Machine{})
	_, err := l.Pick(contract.CPUs(0), 1, placement.Options{})
	require.ErrorContains(t, err, "0 free")
	got, err := l.Pick(contract.CPUs(), 0, placement.Options{})
	require.NoError(t, err)
	require.True(t, got.IsEmpty())
}
