// SPDX-License-Identifier: Apache-2.0

package amounts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/amounts"
)

// The table of package kubelet has the amounts that are refused (A13).
func TestOf(t *testing.T) {
	a, err := amounts.Of(resourceapi.DeviceRequestAllocationResult{ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"hugepages_1Gi": resource.MustParse("2Gi"), "hugepages_2Mi": resource.MustParse("0"),
	}}, 4096)
	require.NoError(t, err)
	require.Equal(t, amounts.Amounts{CPUs: 4, Memory: 8 << 30, Hugepages: map[string]int64{"1Gi": 2 << 30}}, a)
	require.True(t, a.Divisible())
	require.False(t, amounts.Amounts{CPUs: 4}.Divisible())
}
