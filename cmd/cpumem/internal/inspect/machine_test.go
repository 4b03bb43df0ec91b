// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/inspect"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestMachine(t *testing.T) {
	expander := topologytest.T6()
	expander.Nodes[2].DAX = topologytest.CXL
	expander.Nodes[2].Performance = topology.MemoryPerformance{ReadBandwidth: 60000, ReadLatency: 250}
	m, err := inspect.ReadMachine(expander.Roots(), expander.PageSize, config.Default())
	require.NoError(t, err)

	var out bytes.Buffer
	require.NoError(t, m.Table(&out))
	require.Equal(t, ""+
		"ZONE    CPU  CPUS     CORES  L3S  MEMORY  TYPE                 HUGEPAGES      MEMS  DISTANCES\n"+
		"numa-0  3    0-1,4-5  2      1    13Gi    dram                 1Gi=2,2Mi=512  0     0:10,1:21,2:32\n"+
		"numa-1  4    2-3,6-7  2      1    13Gi    dram                 1Gi=2,2Mi=512  1     0:21,1:10,2:21\n"+
		"numa-2  0    -        0      0    64Gi    cxl,60000MB/s,250ns  -              2     0:32,1:21,2:10\n"+
		"\nshared pool with no claim: cpus 0-7\n", out.String())

	out.Reset()
	m.Zones = m.Zones[2:]
	require.NoError(t, json.NewEncoder(&out).Encode(m))
	require.JSONEq(t, `{"pageSize":4096,"sharedPool":{"cpus":"0-7","mems":"0-2"},"zones":[{"name":"numa-2","cpu":0,"cpus":"","cores":0,
		"l3Caches":0,"memory":68719476736,"mems":"2","memoryType":"cxl","memoryReadBandwidth":60000,"memoryReadLatency":250,
		"distances":{"0":32,"1":21,"2":10},"nearestCPUNode":1,"nearestCPUDistance":21}]}`, out.String())
}

// The slices are the ones that the frontend publishes for the node.
func TestResourceSlices(t *testing.T) {
	s := topologytest.T1()
	m, err := inspect.ReadMachine(s.Roots(), s.PageSize, config.Default())
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, m.ResourceSlices(&out))
	var slice resourceapi.ResourceSlice
	require.NoError(t, yaml.UnmarshalStrict(out.Bytes(), &slice))
	require.Equal(t, "ResourceSlice", slice.Kind)
	require.Equal(t, "dra.cpumem", slice.Spec.Driver)
	require.Len(t, slice.Spec.Devices, len(m.Zones))
	require.Equal(t, m.Zones[0].Name, slice.Spec.Devices[0].Name)
	require.EqualValues(t, m.Zones[0].CPU, new(slice.Spec.Devices[0].Capacity["cpu"].Value).Value())
}

// A07: a contradiction is shown with what was assumed instead.
func TestWarnings(t *testing.T) {
	s := topologytest.T2()
	sys := s.Sys()
	sys["devices/system/cpu/cpu1/cache/index2/shared_cpu_list"].Data = []byte("1,5\n")
	m, err := inspect.ReadMachine(topology.Roots{Sys: sys, Proc: s.Proc()}, s.PageSize, config.Default())
	require.NoError(t, err)
	require.Len(t, m.Warnings, 1)
	var out bytes.Buffer
	require.NoError(t, m.Table(&out))
	require.Contains(t, out.String(), "\nwarning: sysfs devices/system/cpu/cpu0/cache/index*/shared_cpu_list: "+
		"\"0-1,4-5\", but CPU 1 in it says \"1,5\" in devices/system/cpu/cpu1/cache/index*/shared_cpu_list; "+
		"the CPUs of NUMA node 0 on socket 0 are taken for one L3\n")
	out.Reset()
	require.NoError(t, json.NewEncoder(&out).Encode(m))
	require.Contains(t, out.String(), `"warnings":[`)
}

func TestThisMachine(t *testing.T) {
	m, err := inspect.ReadMachine(topology.Roots{Sys: os.DirFS("/sys"), Proc: os.DirFS("/proc")}, int64(os.Getpagesize()), config.Default())
	require.NoError(t, err)
	require.NotEmpty(t, m.Zones)
}

func TestMachineThatCannotBe(t *testing.T) {
	c := config.Default()
	c.ReservedCPUs = "99"
	s := topologytest.T1()
	_, err := inspect.ReadMachine(s.Roots(), s.PageSize, c)
	require.ErrorContains(t, err, "reservedCPUs 99")
	_, err = inspect.ReadMachine(s.Roots(), 5, c)
	require.ErrorContains(t, err, "page size 5")
}
