// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// Values of MIDR_EL1; the part number is in bits 4 to 15.
const (
	a510, a710, a715, x3 = 0x411fd461, 0x412fd470, 0x411fd4d0, 0x411fd4e0
	a725, x925           = 0x410fd871, 0x410fd851
)

func TestKindsOfCores(t *testing.T) {
	gb10 := []int{718, 718, 997, 997, 731, 731, 1017, 1024}
	phone := []int{206, 206, 206, 609, 609, 609, 609, 1024}
	for _, c := range []struct {
		name        string
		capacities  []int
		registers   []uint64
		performance string // all other CPUs are efficiency cores; empty: all are standard
	}{
		{"one capacity", []int{1024, 1024, 1024, 1024}, nil, ""},
		{"A74 the largest gap", gb10, nil, "2-3,6-7"},
		{"A74 part numbers", gb10, []uint64{a725, a725, x925, x925, a725, a725, x925, x925}, "2-3,6-7"},
		{"the largest gap in proportion", phone, nil, "3-7"},
		{"more than two part numbers", phone, []uint64{a510, a510, a510, a715, a715, a710, a710, x3}, "3-7"},
		{"one part number with several frequencies", gb10, slices.Repeat([]uint64{x925}, 8), ""},
		{"several revisions of one part", gb10, []uint64{x925, x925 + 1, x925, x925, x925 + 1<<20, x925, x925, x925}, ""},
		{"parts whose capacities overlap", []int{700, 900, 1024, 800}, []uint64{a725, a725, x925, x925}, "2-3"},
		{"parts of one capacity", []int{1024, 1024}, []uint64{a710, a715}, ""},
		{"part numbers of other implementers are other parts", []int{500, 1024}, []uint64{x3, x3 + 0x10<<24}, "1"},
		{"a small difference of capacities", []int{1000, 1000, 1024, 1024}, nil, ""},
		{"a small difference of parts", []int{1000, 1000, 1024, 1024}, []uint64{a715, a715, x3, x3}, "2-3"},
		{"registers that not every CPU has", phone, []uint64{a510, a510, a510, a510, a510, a510, a510, 0}, "3-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := topologytest.Spec{PageSize: 4096, Nodes: []topologytest.Node{{Memory: 1 << 30}}}
			for id, capacity := range c.capacities {
				s.CPUs = append(s.CPUs, topologytest.CPU{ID: id, Core: id, Capacity: capacity})
				if c.registers != nil {
					s.CPUs[id].MIDR = c.registers[id]
				}
			}
			want := slices.Repeat([]topology.CPUType{topology.CPUStandard}, len(s.CPUs))
			if c.performance != "" {
				for id := range want {
					want[id] = topology.CPUEfficiency
					if set(t, c.performance).Contains(id) {
						want[id] = topology.CPUPerformance
					}
				}
			}
			var got []topology.CPUType
			for _, c := range s.Machine().CPUs {
				got = append(got, c.Type)
			}
			require.Equal(t, want, got)
		})
	}
}

// Some processors have low-power cores beside the performance and the efficiency cores.
func TestLowPowerCores(t *testing.T) {
	sys := topologytest.T2().Sys()
	sys["devices/cpu_core/cpus"] = &fstest.MapFile{Data: []byte("0-3\n")}
	sys["devices/cpu_atom/cpus"] = &fstest.MapFile{Data: []byte("4-5\n")}
	sys["devices/cpu_lowpower/cpus"] = &fstest.MapFile{Data: []byte("6-7\n")}
	m, err := discover(sys)
	require.NoError(t, err)
	for _, c := range m.CPUs {
		want := topology.CPUPerformance
		if c.ID >= 4 {
			want = topology.CPUEfficiency
		}
		require.Equal(t, want, c.Type, "CPU %d", c.ID)
	}
}

// The kernel shows an empty file for a register that it has not read.
func TestUnreadRegister(t *testing.T) {
	s := topologytest.T7()
	for i := range s.CPUs {
		s.CPUs[i].Capacity, s.CPUs[i].MIDR = []int{446, 1024}[i/4], []uint64{a510, a710}[i/4]
	}
	sys := s.Sys()
	for i := range s.CPUs {
		sys[fmt.Sprintf("devices/system/cpu/cpu%d/regs/identification/midr_el1", i)] = &fstest.MapFile{}
	}
	m, err := discover(sys)
	require.NoError(t, err)
	require.Equal(t, topology.CPUEfficiency, cpu(m, 3).Type)
	require.Equal(t, topology.CPUPerformance, cpu(m, 4).Type)
}
