// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/dra-frontend/topology/topologytest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/lab"
)

// I1: where cgroup2 is mounted with nsdelegate, the actuator cannot write to the cgroup of
// its own container. It keeps the container off claimed CPUs by the pod's cgroup.
func TestOwnContainer(t *testing.T) {
	t.Parallel()
	for _, release := range kerneltest.Releases() {
		t.Run(release.Name, func(t *testing.T) {
			t.Parallel()
			n := lab.NewNode(t, topologytest.T2(), lab.Options{Programs: programs, Kernel: release, OwnContainer: true})
			own := n.OwnContainer()
			before := own.CPUs()
			require.Equal(t, "0-7", own.ReadCgroup("cpuset.cpus.effective"))
			p := podWith(n, "p", lab.Request{Zone: "numa-1", Capacity: cpu("2")})
			require.Equal(t, "2,6", start(t, n, p)[0].CPUs())
			n.Check()
			require.Equal(t, before, own.CPUs(), "the kernel refuses the write")
			require.Equal(t, "0-1,3-5,7", own.ReadCgroup("cpuset.cpus.effective"))

			n.RestartActuator(true)
			n.Ready()
			n.Check()
			require.Equal(t, "0-1,3-5,7", own.ReadCgroup("cpuset.cpus.effective"))

			require.NoError(t, n.Remove(p))
			n.Check()
			require.Equal(t, "0-7", own.ReadCgroup("cpuset.cpus.effective"))
		})
	}
}
