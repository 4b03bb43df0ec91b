// SPDX-License-Identifier: Apache-2.0

package simulation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/cmd/cpumem/internal/simulation"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
)

// nics are two network cards, on the NUMA nodes 1 and 0 and on the PCIe roots of the same
// order, in the form that kubectl writes.
const nics = `
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: worker-nic}
  spec:
    driver: nic.example.com
    nodeName: worker
    pool: {name: worker, generation: 3, resourceSliceCount: 1}
    devices:
    - name: eth1
      attributes:
        resource.kubernetes.io/numaNode: {int: 1}
        resource.kubernetes.io/pcieRoot: {string: "pci0000:40"}
    - name: eth0
      attributes:
        resource.kubernetes.io/numaNode: {ints: [0]}
        resource.kubernetes.io/pcieRoot: {string: "pci0000:00"}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: worker-own}
  spec:
    driver: dra.cpumem
    nodeName: other
    pool: {name: other, generation: 1, resourceSliceCount: 1}
    devices: [{name: left-out}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
spec: {selectors: [{cel: {expression: 'device.driver == "nic.example.com"'}}]}
`

// beside returns a claim of CPUs and of a network card that have the attribute in common.
func beside(name, attribute string) string {
	return `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: ` + name + `}
spec:
  devices:
    requests:
    - {name: nic, exactly: {deviceClassName: nic}}
    - {name: zone, exactly: {deviceClassName: dra.cpumem, capacity: {requests: {cpu: 1}}}}
    constraints: [{matchAttribute: ` + attribute + `}]
---
`
}

func TestBesideOtherDrivers(t *testing.T) {
	others, err := simulation.ReadOtherDrivers(strings.NewReader(nics))
	require.NoError(t, err)
	const node, root = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"
	inOrder := []string{"numa-1", "numa-0", ""}
	for name, c := range map[string]struct {
		attribute string
		configure func(*config.Config)
		zones     []string // of the claims, empty if a claim gets nothing
	}{
		"a number beside numbers and lists": {node, func(*config.Config) {}, inOrder},
		"a list":                            {node, func(c *config.Config) { c.NUMANodeForm = config.NUMANodeList }, inOrder},
		"roots":                             {root, func(c *config.Config) { c.PublishPCIeRoots = true }, inOrder},
		"roots are not published":           {root, func(*config.Config) {}, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			m, cfg := topologytest.T2().Machine(), config.Default()
			m.NUMANodes[0].PCIeRoots, m.NUMANodes[1].PCIeRoots = []string{"pci0000:00"}, []string{"pci0000:40"}
			c.configure(&cfg)
			objects, err := simulation.Read(
				strings.NewReader(beside("first", c.attribute)+beside("second", c.attribute)+beside("third", c.attribute)),
				others.Classes(simulation.ChartClasses()))
			require.NoError(t, err)
			result, err := simulation.Run(t.Context(), m, cfg, objects, others)
			require.NoError(t, err)
			for i, claim := range result.Claims {
				if c.zones[i] == "" {
					require.Equal(t, simulation.Unschedulable, claim.Result, claim.Name)
					continue
				}
				require.Equal(t, simulation.Allocated, claim.Result, "%s: %s", claim.Name, claim.Reason)
				require.Len(t, claim.Results, 1, "the other driver's device is no zone")
				require.Equal(t, c.zones[i], claim.Results[0].Zone)
				require.Equal(t, 1, claim.Results[0].Decision.CPUs.Size())
				require.Equal(t, []simulation.Device{
					{Request: "nic", Driver: "nic.example.com", Device: "eth" + strings.TrimPrefix(c.zones[i], "numa-")},
				}, claim.Devices)
			}
		})
	}
}

func TestOtherDriversPicture(t *testing.T) {
	others, err := simulation.ReadOtherDrivers(strings.NewReader(nics))
	require.NoError(t, err)
	objects, err := simulation.Read(strings.NewReader(beside("c", "resource.kubernetes.io/numaNode")),
		others.Classes(simulation.ChartClasses()))
	require.NoError(t, err)
	result, err := simulation.Run(t.Context(), topologytest.T2().Machine(), config.Default(), objects, others)
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, result.Picture(&out, simulation.View{Width: 100}))
	require.Contains(t, out.String(), "devices of other drivers:\n")
	require.Contains(t, out.String(), "eth1 of nic.example.com\n")
}

func TestFaultyOthers(t *testing.T) {
	slice := func(driver, node string) string {
		return "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec: {driver: " + driver +
			", nodeName: " + node + ", pool: {name: p, generation: 1, resourceSliceCount: 1}}\n---\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":             {"", "no ResourceSlice of another driver"},
		"own slices alone":    {slice("dra.cpumem", "a"), "no ResourceSlice of another driver"},
		"slices of two nodes": {slice("x", "a") + slice("x", "b"), "is of node b, another one of node a"},
		"another kind":        {"apiVersion: v1\nkind: Pod\n", `kind "Pod": want resource.k8s.io/v1 and ResourceSlice or DeviceClass`},
		"another version":     {"apiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\n", `apiVersion "resource.k8s.io/v1beta1"`},
		"an unknown field":    {"apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nspek: {}\n", `document 1: unknown field "spek"`},
		"in a list":           {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod}]\n", "document 1: items[0]: "},
		"no YAML":             {"{", "document 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := simulation.ReadOtherDrivers(strings.NewReader(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzReadOthers(f *testing.F) {
	f.Add([]byte(nics))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [null]}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		others, err := simulation.ReadOtherDrivers(strings.NewReader(string(data)))
		if err != nil {
			require.Less(t, len(err.Error()), 10000+4*len(data), "an error repeats at most the input")
			return
		}
		objects, err := simulation.Read(strings.NewReader(claim("c", "cpu: 1", "")), others.Classes(simulation.ChartClasses()))
		require.NoError(t, err)
		_, err = simulation.Run(t.Context(), topologytest.T1().Machine(), config.Default(), objects, others)
		require.NoError(t, err)
	})
}
