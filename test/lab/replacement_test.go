// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/config"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// named makes a pod with a named claim.
func named(n *lab.Node, name, claim string) *lab.Pod {
	return n.Pod(name, lab.Burstable, lab.ContainerSpec{Name: "main", Claims: []string{claim}})
}

// only returns the only claim on the node.
func only(t *testing.T, n *lab.Node) contract.ClaimRecord {
	t.Helper()
	records := slices.Collect(maps.Values(n.Records()))
	require.Len(t, records, 1)
	return records[0]
}

// A64: a rolling update of a Deployment with one named claim. The next pod comes
// while the former pod ends, so kubelet does not call the frontend. The next
// container starts after the end of the former pod, on the same CPUs.
func TestReplacement(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]lab.Request{
		"cpu":       {Capacity: cpu("2")},
		"memory":    {Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}},
		"hugepages": {Capacity: map[string]string{"hugepages_2Mi": "64Mi"}},
		"partition": {Capacity: cpu("2"), Parameters: isolation("partition")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := lab.Options{Programs: programs}
			if name == "partition" {
				o.Kernel = kerneltest.Linux612
			}
			n := lab.NewNode(t, topologytest.T2(), o)
			r.Name = "r"
			claim := n.Claim("named", r)
			p := named(n, "pod-0", claim)
			first := start(t, n, p)[0]
			for i := range 5 {
				next := named(n, fmt.Sprintf("pod-%d", i+1), claim)
				require.True(t, n.Allocate(next))
				require.NoError(t, n.Prepare(next))
				if name != "cpu" {
					_, err := n.CreateContainer(next, "main")
					require.ErrorContains(t, err, "not prepared for this pod", "the pod before has not ended")
				}
				if i == 2 {
					n.RestartFrontend()
					n.Ready()
				}
				require.NoError(t, n.Remove(p))
				n.Unreserve(claim, p)
				n.Joined(next)
				n.Check()
				c, err := n.CreateContainer(next, "main")
				require.NoError(t, err)
				require.NoError(t, c.Start())
				n.Check()
				require.Equal(t, first.CPUs(), c.CPUs(), "the same allocation, the same CPUs")
				p = next
			}
			require.NoError(t, n.Remove(p))
			n.Check()
			require.Empty(t, n.Records())
		})
	}
}

// A64, I1: a pod is deleted by force while its program runs, and its claim gets a new
// allocation under the same UID. The running pod keeps the CPUs until it has ended;
// then the claim is decided anew for the next pod.
func TestReplacementOfAForcedDeletion(t *testing.T) {
	t.Parallel()
	n := newNode(t, topologytest.T2())
	claim := n.Claim("named", lab.Request{Name: "r", Zone: "numa-0", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
	p := named(n, "pod-0", claim)
	start(t, n, p)
	before := only(t, n)

	n.Unreserve(claim, p)
	next := named(n, "pod-1", claim)
	require.True(t, n.Allocate(next))
	require.NoError(t, n.Prepare(next), "kubelet does not ask")
	_, err := n.CreateContainer(next, "main")
	require.ErrorContains(t, err, "not prepared for this pod")
	n.RestartKubelet()
	require.ErrorContains(t, n.Prepare(next), p.UID, "kubelet was restarted and asks")
	n.Check()
	require.Equal(t, before, only(t, n))

	require.NoError(t, n.Remove(p))
	n.Joined(next)
	require.NoError(t, n.Prepare(next))
	n.Check()
	c, err := n.CreateContainer(next, "main")
	require.NoError(t, err)
	require.NoError(t, c.Start())
	n.Check()
	require.NotEqual(t, before.Results[0].ShareID, only(t, n).Results[0].ShareID)
}

// A64: after a claim is decided anew, the next pod's containers read the metadata of
// the new decision.
func TestReplacementOfMetadata(t *testing.T) {
	t.Parallel()
	n := lab.NewNode(t, topologytest.T2(), lab.Options{
		Programs: programs, Configure: func(c *config.Config) { c.DeviceMetadata = true },
	})
	claim := n.Claim("named", lab.Request{Name: "r", Capacity: map[string]string{"cpu": "2", "memory": "1Gi"}})
	p := named(n, "pod-0", claim)
	first := start(t, n, p)[0]
	require.Equal(t, first.CPUs(), *metadataOf(t, first).Attributes["cpuset"].StringValue)

	n.Unreserve(claim, p)
	hog := podWith(n, "hog", lab.Request{Zone: "numa-0", Capacity: cpu("3")})
	require.True(t, n.Allocate(hog))
	next := named(n, "pod-1", claim)
	require.True(t, n.Allocate(next), "in the other zone")
	require.NoError(t, n.Prepare(next), "kubelet does not ask")
	require.NoError(t, n.Remove(p))
	n.Joined(next)
	c, err := n.CreateContainer(next, "main")
	require.NoError(t, err)
	require.NoError(t, c.Start())
	require.NotEqual(t, first.CPUs(), c.CPUs())
	m := metadataOf(t, c)
	require.Equal(t, "numa-1", m.Name)
	require.Equal(t, c.CPUs(), *m.Attributes["cpuset"].StringValue)
	n.Check()
}
