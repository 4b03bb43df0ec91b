// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/kubelet"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/placement"
)

// configure gives the claim the configurations as user and scheduler do: its own are in the
// spec, those of its class in the allocation.
func configure(c *resourceapi.ResourceClaim, configs []resourceapi.DeviceAllocationConfiguration) {
	c.Spec.Devices.Config, c.Status.Allocation.Devices.Config = nil, nil
	for _, config := range configs {
		if config.Source == resourceapi.AllocationConfigSourceClass {
			c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, config)
			continue
		}
		c.Spec.Devices.Config = append(c.Spec.Devices.Config, resourceapi.DeviceClaimConfiguration{
			Requests: config.Requests, DeviceConfiguration: config.DeviceConfiguration,
		})
	}
}

// opaque returns claim parameters with the JSON members.
func opaque(members string, requests ...string) []resourceapi.DeviceAllocationConfiguration {
	return []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim, Requests: requests,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver:     kubelet.DriverName,
			Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion":"dra.cpumem/v1alpha1","kind":"ClaimParameters",` + members + `}`)},
		}},
	}}
}

// ofClass returns class parameters with the JSON members.
func ofClass(members string) []resourceapi.DeviceAllocationConfiguration {
	config := opaque(members)
	config[0].Source = resourceapi.AllocationConfigSourceClass
	return config
}

// A78: the claim is refused before a file is written.
func TestClaimCannotLiftHugepageLimits(t *testing.T) {
	n := newNode(t)
	before := n.state()
	c := n.claim(1, "numa-0", capacity{"hugepages_2Mi": "4Mi"})
	configure(c, opaque(`"hugepages":{"limits":"unlimited"}`))
	_, err := n.prepare(c)
	require.ErrorContains(t, err, "hugepages.limits: unlimited is not a claim's to ask for")
	require.Empty(t, n.claimFiles())
	require.Equal(t, before, n.state())
}

// Every parameter of a claim reaches the decision.
func TestParametersReachTheDecision(t *testing.T) {
	n := newNode(t)
	inventory := t2()
	var asked placement.Options
	inventory.Pick = func(free contract.CPUSet, count int, o placement.Options) (contract.CPUSet, error) {
		asked = o
		return contract.CPUs(free.List()[:count]...), nil
	}
	n.driver.SetInventory(inventory)
	c := n.claim(1, "numa-1", capacity{"cpu": "2", "memory": "1Gi", "hugepages_2Mi": "4Mi"})
	configure(c, append(opaque(`"cpu":{"placement":"spread","wholeCores":true,"cores":"any"},`+
		`"memory":{"limit":"2Gi","throttlingFactor":0.5,"protection":"min","policy":"bind"}`),
		ofClass(`"hugepages":{"limits":"unlimited"}`)...))
	_, err := n.prepare(c)
	require.NoError(t, err)
	require.Equal(t, placement.Options{Placement: placement.Spread, WholeCores: true, Cores: placement.CoresAny}, asked)
	result := n.record(1).Results[0]
	require.Equal(t, contract.Decision{
		V: contract.Version, CPUs: contracttest.CPUs("2-3"), Mems: contracttest.NUMANodes("1"),
		Memory:       &contract.Memory{Min: gi, High: gi + gi/2, Max: 2 * gi},
		MemoryPolicy: &contract.MemoryPolicy{Mode: contract.ModeBind, Nodes: contracttest.NUMANodes("1")},
		Hugepages:    map[string]contract.Limit{"2Mi": contract.Max},
		Requires:     []string{contract.FeatureMemoryPolicy},
	}, result.Decision)
	require.Equal(t, "spread", result.Parameters["cpu.placement"])
	require.Equal(t, "2147483648", result.Parameters["memory.limit"])
	require.Equal(t, "max", n.state().Pods[uid(1001)].Cgroup["hugetlb.2MB.max"])
}

// Parameters of one request do not change other requests, and parameters of a
// subrequest count for it only. Hugepage limits can be left to kubelet.
func TestParametersOfOneRequest(t *testing.T) {
	n := newNode(t)
	c := n.claim(1, "numa-0", capacity{"hugepages_2Mi": "4Mi"})
	second := c.Status.Allocation.Devices.Results[0]
	second.Request, second.Device = "other/large", "numa-1"
	second.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}
	c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, second)
	configure(c, append(append(opaque(`"hugepages":{"limits":"unchanged"}`, "zone"),
		opaque(`"memory":{"limit":"3Gi"}`, "other/large")...), opaque(`"memory":{"limit":"4Gi"}`, "other/small")...))
	_, err := n.prepare(c)
	require.NoError(t, err)
	results := n.record(1).Results
	require.Nil(t, results[0].Decision.Hugepages)
	require.Equal(t, contract.Limit(3*gi), results[1].Decision.Memory.Max)
	require.NotContains(t, n.state().Pods[uid(1001)].Cgroup, "hugetlb.2MB.max")
}
