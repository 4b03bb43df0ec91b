// SPDX-License-Identifier: Apache-2.0

package hollow_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/hollow"
)

func TestDevices(t *testing.T) {
	for _, nodes := range []int{1, 2, 8} {
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
	one, err := hollow.Devices(1)
	require.NoError(t, err)
	devices := make([]resourceapi.Device, 65)
	for i := range devices {
		devices[i] = one[0]
		devices[i].Name = fmt.Sprintf("numa-%d", i)
	}
	client := fake.NewClientset()
	require.NoError(t, hollow.Publish(t.Context(), client, 3, map[string][]resourceapi.Device{hollow.Driver: devices}))
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 3)
	slices, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, slices.Items, 6, "a slice takes 64 devices")
	found := map[string]int{}
	for _, s := range slices.Items {
		require.Equal(t, *s.Spec.NodeName, s.Spec.Pool.Name)
		require.EqualValues(t, 2, s.Spec.Pool.ResourceSliceCount)
		found[s.Spec.Pool.Name] += len(s.Spec.Devices)
	}
	require.Equal(t, map[string]int{hollow.Name(0): 65, hollow.Name(1): 65, hollow.Name(2): 65}, found)
}

func TestEach(t *testing.T) {
	var sum atomic.Int64
	require.NoError(t, hollow.Each(t.Context(), 100, func(_ context.Context, i int) error {
		sum.Add(int64(i))
		return nil
	}))
	require.EqualValues(t, 99*100/2, sum.Load())
	want := errors.New("number 3")
	require.ErrorIs(t, hollow.Each(t.Context(), 1000, func(ctx context.Context, i int) error {
		if i == 3 {
			return want
		}
		<-ctx.Done() // the error ends all other calls
		return nil
	}), want)
	ended, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, hollow.Each(ended, 1, func(context.Context, int) error { return nil }), context.Canceled)
}

// A cluster that is up is somebody's work.
func TestStartLeavesAClusterAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run", "options.json")
	require.NoError(t, os.Mkdir(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o644))
	_, err := hollow.Start(t.Context(), dir, nil)
	require.ErrorContains(t, err, "a cluster is up in "+dir)
	require.FileExists(t, file)
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
