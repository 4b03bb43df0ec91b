// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

func newNode(t *testing.T, spec topologytest.Spec) *lab.Node {
	t.Helper()
	n := lab.NewNode(t, spec, lab.Options{Programs: programs})
	return n
}

// cpu returns a capacity of CPUs only.
func cpu(count string) map[string]string { return map[string]string{"cpu": count} }

// start allocates and prepares the pod and starts all its containers.
func start(t *testing.T, n *lab.Node, p *lab.Pod) []*lab.Container {
	t.Helper()
	require.True(t, n.Allocate(p))
	return startAllocated(t, n, p)
}

func startAllocated(t *testing.T, n *lab.Node, p *lab.Pod) []*lab.Container {
	t.Helper()
	require.NoError(t, n.Prepare(p))
	var out []*lab.Container
	for _, spec := range p.Containers {
		c, err := n.CreateContainer(p, spec.Name)
		require.NoError(t, err)
		n.Check()
		require.NoError(t, c.Start())
		out = append(out, c)
		n.Check()
	}
	return out
}

// A10, A30, A31, A32: the whole path from the published slice to the cgroup and back.
func TestWholePath(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	n.Check()
	pool := start(t, n, n.Pod("pool", lab.Burstable, lab.ContainerSpec{Name: "main"}))[0]
	require.Equal(t, "0-7", pool.CPUs())

	claim := n.Claim("claim", lab.Request{Name: "zone", Zone: "numa-1",
		Capacity: map[string]string{"cpu": "4", "memory": "1Gi", "hugepages_2Mi": "64Mi"}})
	p := n.Pod("exclusive", lab.Guaranteed, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
	c := start(t, n, p)[0]
	require.Equal(t, "2-3,6-7", c.CPUs())
	require.Equal(t, "1", c.ReadCgroup("cpuset.mems"))
	require.Equal(t, "1073741824", c.ReadCgroup("memory.min"))
	require.Equal(t, "67108864", c.ReadCgroup("hugetlb.2MB.max"))
	require.Equal(t, "0-1,4-5", pool.CPUs())

	require.NoError(t, n.Remove(p))
	n.Check()
	require.Equal(t, "0-7", pool.CPUs())
	require.Empty(t, n.Records())
}
