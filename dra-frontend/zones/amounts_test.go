// SPDX-License-Identifier: Apache-2.0

package zones_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/zones"
)

// The table of package kubelet has the amounts that are refused (A13).
func TestAmountsOf(t *testing.T) {
	a, err := zones.AmountsOf(resourceapi.DeviceRequestAllocationResult{ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"hugepages_1Gi": resource.MustParse("2Gi"), "hugepages_2Mi": resource.MustParse("0"),
	}}, 4096)
	require.NoError(t, err)
	require.Equal(t, zones.Amounts{CPUs: 4, Memory: 8 << 30, Hugepages: map[string]int64{"1Gi": 2 << 30}}, a)
	require.True(t, a.HasMemory())
	require.False(t, zones.Amounts{CPUs: 4}.HasMemory())
}

func TestCapacityNames(t *testing.T) {
	for name, size := range map[resourceapi.QualifiedName]int64{
		"hugepages_64Ki": 64 << 10, "hugepages_2Mi": 2 * mi, "hugepages_512Mi": 512 * mi, "hugepages_1Gi": gi, "hugepages_16Gi": 16 * gi,
	} {
		require.Equal(t, name, zones.CapacityHugepages(size))
		got, ok := zones.HugepageSize(name)
		require.True(t, ok)
		require.Equal(t, size, got)
	}
	for _, name := range []resourceapi.QualifiedName{
		"cpu", "memory", "hugepages_", "hugepages_3Mi", "hugepages-2Mi", "hugepages_2M", "hugepages_1024Mi",
	} {
		_, ok := zones.HugepageSize(name)
		require.False(t, ok, name)
	}
}

// FuzzHugepageSize: each page size has one name.
func FuzzHugepageSize(f *testing.F) {
	f.Add("hugepages_2Mi")
	f.Add("hugepages_+1Gi")
	f.Fuzz(func(t *testing.T, name string) {
		size, ok := zones.HugepageSize(resourceapi.QualifiedName(name))
		if ok {
			require.Equal(t, resourceapi.QualifiedName(name), zones.CapacityHugepages(size))
		}
	})
}

// FuzzAmounts: an allocation has any capacity. The amounts are the capacity or an error,
// and a record of them holds the same memory.
func FuzzAmounts(f *testing.F) {
	f.Add("cpu", "4")
	f.Add("memory", "8Gi")
	f.Add("hugepages_2Mi", "-2Mi")
	f.Add("memory", "7E")
	f.Fuzz(func(t *testing.T, name, amount string) {
		if len(amount) > 40 || strings.ContainsAny(amount, "eE") && !strings.HasSuffix(amount, "E") {
			return // the library computes with a large exponent for hours, in the API server first
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return
		}
		a, err := zones.AmountsOf(resourceapi.DeviceRequestAllocationResult{
			ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{resourceapi.QualifiedName(name): q},
		}, 4096)
		if err != nil {
			return
		}
		held := zones.HeldMemory(contract.ResultRecord{Consumed: map[string]string{name: q.String()}})
		sum := int64(a.CPUs) + a.Memory
		for size, bytes := range a.Hugepages {
			sum += bytes
			page, err := contract.ParsePageSize(size)
			require.NoError(t, err)
			require.Equal(t, bytes, held[page])
		}
		require.Equal(t, a.Memory, held[zones.BasePages])
		require.Zero(t, q.CmpInt64(sum))
	})
}
