// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

func TestDevices(t *testing.T) {
	for _, nodes := range []int{1, 2, 8, 64} {
		devices, err := hollow.Devices(nodes)
		require.NoError(t, err)
		require.Len(t, devices, nodes)
		for i, d := range devices {
			require.Equal(t, fmt.Sprintf("numa-%d", i), d.Name)
			require.Contains(t, d.Capacity, resourceapi.QualifiedName("hugepages_2Mi"))
		}
	}
	_, err := hollow.Devices(3)
	require.ErrorContains(t, err, "3 NUMA nodes: give 1 or an even number")
}

// Each node has its own pool, in as many slices as its devices need.
func TestPublish(t *testing.T) {
	devices, err := hollow.Devices(64)
	require.NoError(t, err)
	client := fake.NewClientset()
	require.NoError(t, hollow.Publish(t.Context(), client, 3, map[string][]resourceapi.Device{hollow.Driver: devices}))
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 3)
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	found := map[string]int{}
	for _, s := range slices.Items {
		require.Equal(t, *s.Spec.NodeName, s.Spec.Pool.Name)
		found[s.Spec.Pool.Name] += len(s.Spec.Devices)
	}
	require.Equal(t, map[string]int{hollow.Name(0): 64, hollow.Name(1): 64, hollow.Name(2): 64}, found)
}

func TestEach(t *testing.T) {
	var calls atomic.Int64
	err := hollow.Each(100, func(i int) error {
		calls.Add(1)
		if i%50 == 1 {
			return fmt.Errorf("number %d", i)
		}
		return nil
	})
	require.EqualValues(t, 100, calls.Load())
	require.Equal(t, errors.Join(errors.New("number 1"), errors.New("number 51")).Error(), err.Error())
}

func TestCPUTime(t *testing.T) {
	begin, err := hollow.CPUTime(os.Getpid())
	require.NoError(t, err)
	for end := begin; end == begin; { // until the kernel has counted a tick
		end, err = hollow.CPUTime(os.Getpid())
		require.NoError(t, err)
		require.GreaterOrEqual(t, end, begin)
	}
	_, err = hollow.CPUTime(0)
	require.Error(t, err)
}
