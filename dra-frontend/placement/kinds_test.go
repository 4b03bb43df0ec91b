// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestKinds(t *testing.T) {
	l := placement.NewLayout(topologytest.T5().Machine())
	for _, c := range []struct {
		name, free string
		n          int
		options    placement.Options
		want       string
	}{
		{"performance", "0-31", 4, placement.Options{Cores: placement.CoresPerformance}, "0-3"},
		{"one performance thread", "0-31", 1, placement.Options{Cores: placement.CoresPerformance}, "0"},
		{"efficiency", "0-31", 4, placement.Options{Cores: placement.CoresEfficiency}, "16-19"},
		{"all efficiency cores", "0-31", 16, placement.Options{Cores: placement.CoresEfficiency}, "16-31"},
		{"whole performance cores", "1-31", 4, placement.Options{Cores: placement.CoresPerformance, WholeCores: true}, "2-5"},
		{"spread performance", "0-31", 3, placement.Options{Cores: placement.CoresPerformance, Placement: placement.Spread}, "0,2,4"},
		{
			name:    "spread whole performance",
			free:    "0-31",
			n:       4,
			options: placement.Options{Cores: placement.CoresPerformance, Placement: placement.Spread, WholeCores: true},
			want:    "0-3",
		},
		{"any is both", "0-31", 32, placement.Options{Cores: placement.CoresAny}, "0-31"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := l.Pick(parse(t, c.free), c.n, c.options)
			require.NoError(t, err)
			require.Equal(t, c.want, got.String())
		})
	}
}

func TestKindsRefused(t *testing.T) {
	t4, t5 := placement.NewLayout(topologytest.T4().Machine()), placement.NewLayout(topologytest.T5().Machine())
	shared, kinds := &builder{}, []topology.CPUType{topology.CPUEfficiency, topology.CPUPerformance}
	for range 2 {
		shared.addL3(0, 0, func() topology.CPUType {
			slices.Reverse(kinds)
			return kinds[0]
		}, 2, 2)
	}
	for _, c := range []struct {
		name    string
		layout  *placement.Layout
		free    string
		n       int
		options placement.Options
		want    string
	}{
		{
			name:    "too few performance",
			layout:  t5,
			free:    "0-2,16-31",
			n:       4,
			options: placement.Options{Cores: placement.CoresPerformance},
			want:    "4 CPUs of performance cores wanted, 3 free in the zone",
		},
		{
			name:    "too few efficiency",
			layout:  t5,
			free:    "0-15,31",
			n:       2,
			options: placement.Options{Cores: placement.CoresEfficiency},
			want:    "2 CPUs of efficiency cores wanted, 1 free in the zone",
		},
		{
			name:    "no kinds",
			layout:  t4,
			free:    "0-511",
			n:       1,
			options: placement.Options{Cores: placement.CoresEfficiency},
			want:    `cores "efficiency": this machine has no such cores`,
		},
		{"unknown kind", t5, "0-31", 1, placement.Options{Cores: "fast"}, `cores "fast": want "any", "performance" or "efficiency"`},
		{
			name:    "a cache that both kinds share",
			layout:  t5,
			free:    "0-31",
			n:       16,
			options: placement.Options{Cores: placement.CoresEfficiency, WholeL3: true},
			want:    "no whole L3 caches with efficiency cores only are free",
		},
		{
			name:    "two caches that both kinds share",
			layout:  placement.NewLayout(shared.machine(flat)),
			free:    "0-7",
			n:       2,
			options: placement.Options{Cores: placement.CoresPerformance, WholeL3: true},
			want:    "no whole L3 caches with performance cores only are free",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.layout.Pick(parse(t, c.free), c.n, c.options)
			require.ErrorContains(t, err, c.want)
		})
	}
}
