// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

func TestEmptyFileIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "{}", "# nothing\n"} {
		c, err := config.Parse([]byte(text))
		require.NoError(t, err)
		require.Equal(t, config.Default(), c)
	}
}

func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(`
groupBy: socket
exclusivity: pool
reservedCPUs: 0-1,4
reservedMemory: {"0": 512Mi}
reservedHugepages: {"1": {2Mi: 8}}
sharedPool: {minCPUs: 2}
memoryQoS: {throttlingFactor: 0.9, oomScore: keep}
refreshInterval: 5s
guardWait: 1m5s
`))
	require.NoError(t, err)
	require.Equal(t, "socket", c.GroupBy)
	require.Equal(t, config.ExclusivityPool, c.Exclusivity)
	require.Equal(t, []int{0, 1, 4}, c.Reserved().List())
	require.Equal(t, 65*time.Second, c.GuardWait.Duration)
	require.True(t, c.Managed().IsEmpty())
	require.Equal(t, 0.9, *c.MemoryQoS.ThrottlingFactor)
	require.Equal(t, config.OOMScoreKeep, c.MemoryQoS.OOMScore)
	require.Equal(t, "auto", c.MemoryQoS.Protection, "a key that is left out keeps its default")
	memory, err := c.ReservedMemoryBytes()
	require.NoError(t, err)
	require.Equal(t, map[int]int64{0: 512 << 20}, memory)
	pages, err := c.ReservedHugepageCounts()
	require.NoError(t, err)
	require.Equal(t, map[int]map[int64]int64{1: {2 << 20: 8}}, pages)
}

// A56 (first form): a misspelt key is an error, not ignored.
func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":        {"groupby2: x", `unknown field "groupby2"`},
		"miscased key":       {"GroupBy: socket", `unknown field "GroupBy": did you mean groupBy?`},
		"nested unknown key": {"sharedPool: {minCPU: 1}", `unknown field "sharedPool.minCPU": did you mean sharedPool.minCPUs?`},
		"key without parent": {"minCPUs: 1", `unknown field "minCPUs": did you mean sharedPool.minCPUs?`},
		"no quantity":        {"reservedMemory: {'0': lots}", `reservedMemory.0: "lots", want a quantity, such as 512Mi`},
		"no duration":        {"guardWait: 20", "guardWait: 20, want a duration, such as 30s or 1m30s"},
		"no list":            {"memoryTypes: dram", `memoryTypes: "dram", want a list`},
		"no text":            {"reservedCPUs: 0", `reservedCPUs: 0, want text: write it with quotes, as "0"`},
		"no fields":          {"cpu: packed", `cpu: "packed", want fields with values`},
		"no configuration":   {"[groupBy]", `the document: ["groupBy"], want fields with values`},
		"duplicate key":      {"groupBy: socket\ngroupBy: machine", "already set"},
		"not YAML":           {"\t- x", "yaml"},
		"groupBy":            {"groupBy: rack", `groupBy: "rack", want one of`},
		"memory type":        {"memoryTypes: [dram, pmem]", `memoryTypes: "pmem", want one of ["dram" "hbm" "cxl" "unknown"]`},
		"memory type twice":  {"memoryTypes: [cxl, dram, cxl]", `memoryTypes: "cxl" is there twice`},
		"no memory type":     {"memoryTypes: []", `memoryTypes: empty, want some of ["dram" "hbm" "cxl" "unknown"]`},
		"exclusivity":        {"exclusivity: kernel", `exclusivity: "kernel", want one of ["auto" "pool" "partition"]`},
		"empty exclusivity":  {`exclusivity: ""`, `exclusivity: "", want one of`},
		"cpus":               {"reservedCPUs: 3-1", `reservedCPUs: list "3-1": range "3-1" descends`},
		"minCPUs":            {"sharedPool: {minCPUs: 0}", "sharedPool.minCPUs: 0, want 1 or more"},
		"mode":               {"sharedPool: {mode: static}", `sharedPool.mode: "static", want one of ["dynamic" "fixed"]`},
		"fixed pool":         {"sharedPool: {mode: fixed}", "sharedPool.mode: fixed needs managedCPUs"},
		"isolcpus": {
			text: "offerIsolcpus: true",
			want: `offerIsolcpus: true with exclusivity "auto", but the kernel makes no root partition`,
		},
		"lost CPUs": {
			text: "sharedPool: {mode: fixed}\nmanagedCPUs: 2-7\nreservedCPUs: 0,2-3",
			want: "reservedCPUs: CPUs 2-3 are also in managedCPUs 2-7, and with sharedPool.mode fixed",
		},
		"factor":              {"memoryQoS: {throttlingFactor: 1.5}", "throttlingFactor: 1.5"},
		"protection":          {"memoryQoS: {protection: strong}", "memoryQoS.protection"},
		"owner":               {"memoryQoS: {owner: me}", "memoryQoS.owner"},
		"limits":              {"hugepages: {limits: some}", "hugepages.limits"},
		"placement":           {"cpu: {placement: random}", "cpu.placement"},
		"interval":            {"refreshInterval: 1ms", "refreshInterval: 1ms, want 1s or more"},
		"relative path":       {"cdiDir: run/cdi", "cdiDir"},
		"relative file":       {"kubeletConfigFile: kubelet.json", "kubeletConfigFile"},
		"node id":             {`reservedMemory: {"x": 1Gi}`, `reservedMemory: key "x" is not a NUMA node id`},
		"negative memory":     {`reservedMemory: {"0": -1Gi}`, "negative"},
		"hugepage size":       {`reservedHugepages: {"0": {2MB: 1}}`, `page size "2MB"`},
		"negative hugepages":  {`reservedHugepages: {"0": {2Mi: -1}}`, "-1 pages"},
		"negative wait":       {"guardWait: -1s", "guardWait: -1s, want whole seconds from 0s to 1m30s"},
		"broken wait":         {"guardWait: 1500ms", "guardWait: 1.5s, want whole seconds"},
		"wait like kubelet's": {"guardWait: 91s", "guardWait: 1m31s, want whole seconds from 0s to 1m30s"},
		"oomScore":            {"memoryQoS: {oomScore: spec}", `memoryQoS.oomScore: "spec", want one of ["claims" "keep"]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A56: one message has all problems: a wrong name, a wrong type and a wrong value.
func TestParseReportsAllProblems(t *testing.T) {
	_, err := config.Parse([]byte("groupby: socket\nreservedMemory: {'0': lots}\nsharedPool: {minCPUs: 0}\ncpu: {placement: near}\n"))
	require.EqualError(t, err, `unknown field "groupby": did you mean groupBy?
reservedMemory.0: "lots", want a quantity, such as 512Mi
cpu.placement: "near", want one of ["packed" "spread"]
sharedPool.minCPUs: 0, want 1 or more`)
}

// Reserved CPUs may be in a fixed pool, and stay in a dynamic pool, which has managed CPUs only.
func TestReservedCPUsOfPools(t *testing.T) {
	for _, text := range []string{
		"sharedPool: {mode: fixed}\nmanagedCPUs: 2-7\nreservedCPUs: 0-1",
		"managedCPUs: 2-7\nreservedCPUs: 2-3",
		`reservedCPUs: "0"`,
	} {
		_, err := config.Parse([]byte(text))
		require.NoError(t, err, text)
	}
	_, err := config.Parse([]byte("managedCPUs: 2-7\nreservedCPUs: 0,2-3"))
	require.ErrorContains(t, err, "reservedCPUs: CPUs 0 are not in managedCPUs 2-7")
}

func TestReservedMemory(t *testing.T) {
	for text, want := range map[string]int64{"512Mi": 512 << 20, "1.5Gi": 3 << 29, "1500M": 1500e6, "1e3": 1000, "0": 0, "1000m": 1} {
		c, err := config.Parse([]byte(`reservedMemory: {"0": ` + text + `}`))
		require.NoError(t, err, text)
		bytes, err := c.ReservedMemoryBytes()
		require.NoError(t, err, text)
		require.Equal(t, map[int]int64{0: want}, bytes, text)
	}
	for _, text := range []string{"512m", "1.5", "10E", "100E", "1e20", `"18446744073709551615"`} {
		_, err := config.Parse([]byte(`reservedMemory: {"0": ` + text + `}`))
		require.ErrorContains(t, err, "reservedMemory.0: ", text)
		require.ErrorContains(t, err, "whole bytes", text)
	}
}

// What a driver that protects no memory would write is nothing.
func TestOwnerNone(t *testing.T) {
	for _, text := range []string{"throttlingFactor: 0.9", "protection: min", "protection: low"} {
		_, err := config.Parse([]byte("memoryQoS: {owner: none, " + text + "}"))
		require.ErrorContains(t, err, "memoryQoS.owner none", text)
		_, err = config.Parse([]byte("memoryQoS: {" + text + "}"))
		require.NoError(t, err, text)
	}
	_, err := config.Parse([]byte("memoryQoS: {owner: none, protection: none}"))
	require.NoError(t, err)
}

// A45: all owners.
func TestOwners(t *testing.T) {
	for _, owner := range []string{config.OwnerDriver, config.OwnerKubelet, config.OwnerNone} {
		c, err := config.Parse([]byte("memoryQoS: {owner: " + owner + "}\nkubeletConfigFile: /etc/kubernetes/kubelet.json"))
		require.NoError(t, err)
		require.Equal(t, []string{owner, "/etc/kubernetes/kubelet.json"}, []string{c.MemoryQoS.Owner, c.KubeletConfigFile})
	}
}

// FuzzParse: a configuration that is accepted is the same after it is written and read,
// and fits a machine or is refused for it.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"groupBy: socket", "reservedCPUs: 0-65536", "managedCPUs: 2-7\nsharedPool: {mode: fixed}",
		"reservedMemory: {'0': 1Gi}\nreservedHugepages: {'0': {2Mi: 3}}\nrefreshInterval: 1h\nguardWait: 0s",
		"memoryQoS: {throttlingFactor: 0.5, owner: none}\nmemoryTypes: [cxl]\ncpu: {wholeCores: true}",
	} {
		f.Add([]byte(text))
	}
	machine := topologytest.T1().Machine()
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data)
		if err != nil {
			return
		}
		written, err := json.Marshal(c)
		require.NoError(t, err)
		again, err := config.Parse(written)
		require.NoError(t, err)
		rewritten, err := json.Marshal(again)
		require.NoError(t, err)
		require.JSONEq(t, string(written), string(rewritten))
		divided, err := c.Divide(machine)
		if err != nil {
			return
		}
		for _, zone := range divided.Zones {
			require.True(t, zone.CPUs.IsSubsetOf(machine.Online()))
			require.False(t, zone.CPUs.Overlaps(c.Reserved()))
		}
	})
}
