// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/cdidir"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/cdi-contract/contracttest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/claims"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/internal/testnode"
)

// A question about files that are the same does not decode them again: with many pods
// that would take longer than the runtime waits.
func TestSameFileIsNotDecodedAgain(t *testing.T) {
	const pods = 500
	n := testnode.New(t, t.TempDir())
	results := make([]contract.Decision, pods)
	for i := range results {
		results[i].CPUs = contracttest.CPUs("4")
	}
	pod, claim := testnode.UID(1), testnode.UID(11)
	env := n.Prepare(pod, claim, results...)
	n.Change(func(s *contract.NodeState) {
		for i := range pods {
			s.Pods[testnode.UID(1000+i)] = contract.PodState{Claims: []string{testnode.UID(2000 + i)}}
		}
	})
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	node, err := d.Node()
	require.NoError(t, err)
	ask := claims.Container{PodUID: pod, Env: env[:1]}
	_, err = d.ForContainer(node, ask)
	require.NoError(t, err)
	allocated := testing.AllocsPerRun(10, func() {
		_, err := d.Node()
		require.NoError(t, err)
		_, err = d.ForContainer(node, ask)
		require.NoError(t, err)
	})
	require.Less(t, allocated, float64(pods))
}

// The contents of released claims do not stay in memory.
func TestReleasedClaimsAreForgotten(t *testing.T) {
	const released = 15
	n := testnode.New(t, t.TempDir())
	d := claims.New(cdidir.At(n.CDI), nil, "boot")
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	results := make([]contract.Decision, 500)
	for i := range results {
		results[i].CPUs = contracttest.CPUs("4")
	}
	use := func(i int) {
		pod, claim := testnode.UID(1), testnode.UID(100+i)
		env := n.Prepare(pod, claim, results...)
		node, err := d.Node()
		require.NoError(t, err)
		_, err = d.ForContainer(node, claims.Container{PodUID: pod, Env: env[:1]})
		require.NoError(t, err)
		n.Unprepare(pod, claim, "4")
		_, err = d.Node()
		require.NoError(t, err)
	}
	use(0)
	first := inUse()
	for i := range released {
		use(1 + i)
	}
	// The content of one claim is about 100 KiB.
	require.Less(t, int64(inUse())-int64(first), int64(512<<10))
	runtime.KeepAlive(d)
}
